"""Errors on the wire: a google.rpc.Status with the stable code, the fields and the retry delay.

The same bytes travel as gRPC status details (`grpc-status-details-bin`) and inside the answers of a produce
stream, so an error means the same whichever way it came.
"""

import json
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from kayos.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    KayosError,
    ResourceExhausted,
    Unavailable,
    rebuild_error,
)

DOMAIN = "kayos"
DETAILS_KEY = "grpc-status-details-bin"

# What gRPC itself says when no node of ours did; the text is gRPC's own.
_TRANSPORT_ERRORS: dict[grpc.StatusCode, type[KayosError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    # The other side cut the call off (a caller's own cancellation never comes here): try again.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.INTERNAL: InternalError,
}

# What gRPC's asyncio client says in place of the status when the node ended a stream that was being written to.
_CUT_OFF_WHILE_SENDING = "Internal error from Core"


def grpc_code(error: KayosError) -> grpc.StatusCode:
    code: grpc.StatusCode = grpc.StatusCode[error.status]
    return code


def status_from_error(error: KayosError) -> status_pb2.Status:
    fields = {name: json.dumps(value) for name, value in error.fields.items()}
    info = error_details_pb2.ErrorInfo(reason=error.code, domain=DOMAIN, metadata=fields)
    details = [any_pb2.Any(), any_pb2.Any()]
    details[0].Pack(info)
    retry = error_details_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(error.retry_delay_ms)
    details[1].Pack(retry)
    if not error.retry_delay_ms:
        details.pop()
    return status_pb2.Status(code=code_pb2.Code.Value(error.status), message=error.message, details=details)


def error_to_bytes(error: KayosError) -> bytes:
    return bytes(status_from_error(error).SerializeToString())


def error_from_bytes(encoded: bytes) -> KayosError:
    """The error behind a serialized status; one that is not ours stays a plain KayosError."""
    status = status_pb2.Status.FromString(encoded)
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == DOMAIN:
            fields = {name: json.loads(value) for name, value in info.metadata.items()}
            return rebuild_error(info.reason, status.message, fields)
    return KayosError(status.message)


def error_from_rpc(error: grpc.RpcError) -> KayosError:
    """What a failed call means, whether the node or gRPC itself said so."""
    # A blocking stream raises itself. Stream, traceback and frame would then be a ring that keeps the stream until the
    # end of the interpreter, where gRPC may wait for ever for the lock of a stopped thread.
    error.__traceback__ = None
    trailing: Any = error.trailing_metadata() or ()
    for key, value in trailing:
        if key == DETAILS_KEY:
            return error_from_bytes(value)
    code = error.code()
    error_class = _TRANSPORT_ERRORS.get(code, KayosError)
    if error.details() == _CUT_OFF_WHILE_SENDING:
        error_class = Unavailable
    return error_class(f"{code.name}: {error.details()}")
