"""Every method of the schema with its classes, read off the generated descriptors.

Server and client both work on raw bytes and parse here, so that a malformed request is answered with
INVALID_ARGUMENT and not with gRPC's INTERNAL.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf import message, message_factory

from kayos.wire.v1 import cluster_pb2, log_pb2, replication_pb2


@dataclass(frozen=True, slots=True)
class Method:
    """`handler_name` is the method's name in Python: `CommitMark` is served by `commit_mark`."""

    service: str
    name: str
    handler_name: str
    request_class: type[message.Message]
    response_class: type[message.Message]
    client_streams: bool
    server_streams: bool

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


def methods_of(service_descriptor: object) -> Iterator[Method]:
    for method in service_descriptor.methods:  # type: ignore[attr-defined]
        yield Method(
            service=method.containing_service.full_name,
            name=method.name,
            handler_name=re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower(),
            request_class=message_factory.GetMessageClass(method.input_type),
            response_class=message_factory.GetMessageClass(method.output_type),
            client_streams=method.client_streaming,
            server_streams=method.server_streaming,
        )


LOG_SERVICE = log_pb2.DESCRIPTOR.services_by_name["Log"]
CLUSTER_SERVICE = cluster_pb2.DESCRIPTOR.services_by_name["Cluster"]
REPLICATION_SERVICE = replication_pb2.DESCRIPTOR.services_by_name["Replication"]
LOG_METHODS = {method.name: method for method in methods_of(LOG_SERVICE)}
CLUSTER_METHODS = {method.name: method for method in methods_of(CLUSTER_SERVICE)}
REPLICATION_METHODS = {method.name: method for method in methods_of(REPLICATION_SERVICE)}
