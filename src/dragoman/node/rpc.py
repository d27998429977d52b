"""Which gRPC services meet at the kubelet's sockets, and how are they served and called?

One table of services for both sides; messages are generated (`proto/`), the rest needs no generated code. It never
decides what a call means.
"""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
from grpc import aio

from dragoman.errors import Invalid, Retry
from dragoman.node.proto import (
    deviceplugin_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    health_v1_pb2,
    health_v1alpha1_pb2,
    podresources_pb2,
    registration_pb2,
)

SOCKET_PATH_MAX = 107
"""Bytes of a Unix socket's path: 108 in sockaddr_un, one for the terminating NUL."""

_LOCAL = (
    # A subchannel of its own: a plugin that was replaced under the same path must not inherit the old one's back-off.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class Method(msgspec.Struct, frozen=True):
    """One call: messages by generated class; streams is about the answer."""

    request: Any
    response: Any
    streams: bool = False


class Service(msgspec.Struct, frozen=True):
    """A service by its full proto name; label is what `supported_versions` calls it."""

    name: str
    label: str
    methods: dict[str, Method]
    messages: Any


def _dra(version: str, messages: Any) -> Service:
    return Service(
        f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin",
        f"{version}.DRAPlugin",
        {
            "NodePrepareResources": Method(messages.NodePrepareResourcesRequest, messages.NodePrepareResourcesResponse),
            "NodeUnprepareResources": Method(
                messages.NodeUnprepareResourcesRequest, messages.NodeUnprepareResourcesResponse
            ),
        },
        messages,
    )


def _health(version: str, messages: Any) -> Service:
    return Service(
        f"{version}.DRAResourceHealth",
        f"{version}.DRAResourceHealth",
        {"NodeWatchResources": Method(messages.NodeWatchResourcesRequest, messages.NodeWatchResourcesResponse, True)},
        messages,
    )


REGISTRATION = Service(
    "pluginregistration.Registration",
    "",
    {
        "GetInfo": Method(registration_pb2.InfoRequest, registration_pb2.PluginInfo),
        "NotifyRegistrationStatus": Method(
            registration_pb2.RegistrationStatus, registration_pb2.RegistrationStatusResponse
        ),
    },
    registration_pb2,
)
DRA_V1 = _dra("v1", dra_v1_pb2)
DRA_V1BETA1 = _dra("v1beta1", dra_v1beta1_pb2)
HEALTH_V1 = _health("v1", health_v1_pb2)
HEALTH_V1ALPHA1 = _health("v1alpha1", health_v1alpha1_pb2)
POD_RESOURCES = Service(
    "v1.PodResourcesLister",
    "",
    {
        "List": Method(podresources_pb2.ListPodResourcesRequest, podresources_pb2.ListPodResourcesResponse),
        "GetAllocatableResources": Method(
            podresources_pb2.AllocatableResourcesRequest, podresources_pb2.AllocatableResourcesResponse
        ),
        "Get": Method(podresources_pb2.GetPodResourcesRequest, podresources_pb2.GetPodResourcesResponse),
    },
    podresources_pb2,
)
DEVICE_REGISTRATION = Service(
    "v1beta1.Registration",
    "v1beta1",
    {"Register": Method(deviceplugin_pb2.RegisterRequest, deviceplugin_pb2.Empty)},
    deviceplugin_pb2,
)
DEVICE_PLUGIN = Service(
    "v1beta1.DevicePlugin",
    "v1beta1",
    {
        "GetDevicePluginOptions": Method(deviceplugin_pb2.Empty, deviceplugin_pb2.DevicePluginOptions),
        "ListAndWatch": Method(deviceplugin_pb2.Empty, deviceplugin_pb2.ListAndWatchResponse, streams=True),
        "GetPreferredAllocation": Method(
            deviceplugin_pb2.PreferredAllocationRequest, deviceplugin_pb2.PreferredAllocationResponse
        ),
        "Allocate": Method(deviceplugin_pb2.AllocateRequest, deviceplugin_pb2.AllocateResponse),
        "PreStartContainer": Method(
            deviceplugin_pb2.PreStartContainerRequest, deviceplugin_pb2.PreStartContainerResponse
        ),
    },
    deviceplugin_pb2,
)
DRA_BY_LABEL = {service.label: service for service in (DRA_V1, DRA_V1BETA1)}
HEALTH_BY_LABEL = {service.label: service for service in (HEALTH_V1, HEALTH_V1ALPHA1)}


def handlers(service: Service, implementation: dict[str, Any]) -> grpc.GenericRpcHandler:
    """Serve it: an async function (request, context) by method name; an async generator where the answer streams."""
    made = {}
    for name, method in service.methods.items():
        make = grpc.unary_stream_rpc_method_handler if method.streams else grpc.unary_unary_rpc_method_handler
        made[name] = make(
            implementation[name],
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.name, made)


def checked_socket(path: Path) -> Path:
    """The path, if a Unix socket can have it. Raises Invalid."""
    size = len(str(path).encode())
    if size > SOCKET_PATH_MAX:
        raise Invalid(
            str(path),
            f"a Unix socket's path has at most {SOCKET_PATH_MAX} bytes, this one {size}: use a shorter folder",
        )
    return path


async def serve(path: Path, served: list[grpc.GenericRpcHandler], *more: Path) -> aio.Server:
    """A started server on that Unix socket, and on more of them; stale socket files are removed first.

    Raises Invalid, Retry.
    """
    server = aio.server()
    server.add_generic_rpc_handlers(tuple(served))
    for one in (path, *more):
        remove_socket(checked_socket(one))
        one.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            server.add_insecure_port(f"unix:{one}")
        except RuntimeError as error:
            raise Retry(f"{one}: cannot listen: {error}") from error
    try:
        await server.start()
    except RuntimeError as error:
        raise Retry(f"{path}: cannot listen: {error}") from error
    return server


def remove_socket(path: Path) -> None:
    """Remove a socket file; what is no socket stays and is reported. Raises Invalid."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Invalid(str(path), "is in the way of a socket and no socket itself: remove or rename it")
    path.unlink(missing_ok=True)


def dial(path: Path) -> aio.Channel:
    """A channel to that Unix socket. Raises Invalid for a path no socket can have."""
    return aio.insecure_channel(f"unix:{checked_socket(path)}", options=_LOCAL)


async def call(channel: aio.Channel, service: Service, method: str, request: Any, *, timeout_s: float) -> Any:
    """One call. Raises grpc.aio.AioRpcError."""
    kind = service.methods[method]
    invoke = channel.unary_unary(
        f"/{service.name}/{method}",
        request_serializer=kind.request.SerializeToString,
        response_deserializer=kind.response.FromString,
    )
    return await invoke(request, timeout=timeout_s)


def stream(channel: aio.Channel, service: Service, method: str, request: Any) -> AsyncIterator[Any]:
    """A call whose answers are iterated. Raises grpc.aio.AioRpcError while iterating."""
    kind = service.methods[method]
    invoke = channel.unary_stream(
        f"/{service.name}/{method}",
        request_serializer=kind.request.SerializeToString,
        response_deserializer=kind.response.FromString,
    )
    answers: AsyncIterator[Any] = invoke(request)
    return answers
