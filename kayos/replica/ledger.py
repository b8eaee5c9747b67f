"""Who holds what durably in this epoch, and those who wait for it.

Durable sequences of one epoch only rise and say something of this chain's log alone: they are noted only of replicas
whose log was found to be a prefix of the head's. From them follow the commit point and the four points that a wait can
be for; a wait ends when its point reaches it.
"""

from bisect import insort
from collections.abc import Iterator

from kayos.model.chain import ChainView
from kayos.replica.events import Until, Wait
from kayos.stream.messages import Durable


class Ledger:
    def __init__(self, view: ChainView) -> None:
        self.view = view
        self.durable: Durable = {}
        self.commit_point = 0
        self._news: set[str] = set()

    def note(self, node: str, seq: int) -> None:
        if seq > self.durable.get(node, 0):
            self.durable[node] = seq
            self._news.add(node)

    def merge(self, durable: Durable, *, except_node: str) -> None:
        """What a neighbour knows; of itself a replica knows better."""
        for node, seq in durable.items():
            if node != except_node and self.view.find_member(node) is not None:
                self.note(node, seq)

    def take_news(self) -> set[str]:
        """The nodes of which more is known than when this was asked last."""
        news, self._news = self._news, set()
        return news

    def find_commit_point(self) -> int:
        """The largest sequence that enough replicas of this chain hold durably, as far as is known here."""
        found = self.view.find_commit_point(self.durable)
        if found > self.commit_point:
            self.commit_point = found
        return self.commit_point

    def find_point(self, until: Until, copies: int) -> int:
        """The largest sequence for which a wait of this kind is over."""
        durable, view = self.durable, self.view
        if until is Until.COPIES:
            held = sorted([durable.get(node, 0) for node in view.serving])
            return held[-copies] if copies <= len(held) else 0
        tails = [durable.get(node, 0) for node in view.tail_nodes]
        match until:
            case Until.ALL:
                return min([durable.get(node, 0) for node in view.spine] + [max(tails)])
            case Until.ANY_TAIL:
                return max(tails)
            case Until.ALL_TAILS:
                return min(tails)

    def count_copies(self, seq: int) -> int:
        return self.view.count_copies(self.durable, seq)


class Waiters:
    """Waits by kind, ascending by sequence, so that a point that moved looks only at those it reaches."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[Until, int], list[tuple[int, int]]] = {}
        self._kinds: dict[int, tuple[Until, int]] = {}

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, wait: Wait) -> None:
        kind = (wait.until, wait.copies)
        insort(self._by_kind.setdefault(kind, []), (wait.seq, wait.token))
        self._kinds[wait.token] = kind

    def drop(self, token: int) -> None:
        kind = self._kinds.pop(token, None)
        if kind is not None:
            self._by_kind[kind] = [entry for entry in self._by_kind[kind] if entry[1] != token]

    def take_reached(self, ledger: Ledger) -> Iterator[tuple[int, int]]:
        """(token, seq) of those whose wait is over."""
        for kind, waiting in self._by_kind.items():
            if not waiting:
                continue
            point = ledger.find_point(*kind)
            count = 0
            for seq, token in waiting:
                if seq > point:
                    break
                count += 1
                del self._kinds[token]
                yield token, seq
            if count:
                del waiting[:count]

    def take_all(self) -> list[int]:
        tokens = list(self._kinds)
        self._kinds.clear()
        self._by_kind.clear()
        return tokens
