"""Errors on the wire: what was raised at one end is what is raised at the other."""

import grpc
import pytest
from google.rpc import code_pb2, status_pb2

from kayos.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    KayosError,
    ResourceExhausted,
    Unavailable,
    all_error_classes,
)
from kayos.wire.status import error_from_bytes, error_from_rpc, error_to_bytes, grpc_code

CLASSES = sorted(set(all_error_classes()), key=lambda error_class: error_class.__name__)


@pytest.mark.parametrize("error_class", CLASSES, ids=lambda error_class: error_class.__name__)
def test_every_error_survives_the_wire(error_class: type[KayosError]) -> None:
    sent = error_class("what is wrong: what to do é\n", seq=2**64 - 1, word="x", retry_delay_ms=250)
    received = error_from_bytes(error_to_bytes(sent))
    assert type(received) is error_class
    assert (received.message, received.fields) == (sent.message, sent.fields)
    assert grpc_code(sent).name == error_class.status
    status = status_pb2.Status.FromString(error_to_bytes(sent))
    assert code_pb2.Code.Name(status.code) == error_class.status


def test_codes_are_distinct_and_stable_words() -> None:
    codes = [error_class.code for error_class in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").isalpha() and code.isupper() for code in codes)


def test_the_retry_delay_travels_in_the_standard_form_too() -> None:
    with_delay = status_pb2.Status.FromString(error_to_bytes(Unavailable("later", retry_delay_ms=1_500)))
    without = status_pb2.Status.FromString(error_to_bytes(InvalidArgument("never")))
    kinds = [detail.type_url.rpartition(".")[2] for detail in with_delay.details]
    assert kinds == ["ErrorInfo", "RetryInfo"] and len(without.details) == 1


def test_a_status_that_is_not_ours_stays_a_plain_error() -> None:
    received = error_from_bytes(status_pb2.Status(code=5, message="somebody else").SerializeToString())
    assert type(received) is KayosError and received.message == "somebody else"


class Failed(grpc.RpcError):
    """What a call raises when gRPC itself ended it."""

    def __init__(self, code: grpc.StatusCode, details: str = "of gRPC") -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> None:
        return None


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        (Failed(grpc.StatusCode.UNAVAILABLE), Unavailable),
        (Failed(grpc.StatusCode.CANCELLED), Unavailable),
        (Failed(grpc.StatusCode.DEADLINE_EXCEEDED), DeadlineExceeded),
        (Failed(grpc.StatusCode.RESOURCE_EXHAUSTED), ResourceExhausted),
        (Failed(grpc.StatusCode.INTERNAL), InternalError),
        (Failed(grpc.StatusCode.INTERNAL, "Internal error from Core"), Unavailable),
        (Failed(grpc.StatusCode.UNIMPLEMENTED), KayosError),
    ],
    ids=lambda value: f"{value.code().name} {value.details()}" if isinstance(value, Failed) else value.__name__,
)
def test_what_grpc_says_by_itself(failed: Failed, expected: type[KayosError]) -> None:
    assert type(error_from_rpc(failed)) is expected
