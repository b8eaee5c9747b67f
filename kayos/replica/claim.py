"""Whether a role is this life's to take."""

from kayos.model.chain import ChainView, MemberState


def is_mine(view: ChainView, node: str, incarnation: bytes, *, stored_epoch: int) -> bool:
    """A role belongs to one life of a replica. Where the view does not name it, the first one to store the epoch has
    it; a chain of one is what it is, whoever restarts it, and a newcomer that waits has acknowledged nothing."""
    member = view.find_member(node)
    if member is None:
        return True
    if member.incarnation:
        return member.incarnation == incarnation
    return stored_epoch < view.epoch or len(view.serving) == 1 or member.state is MemberState.WAITING
