"""The wire: field numbers and service paths as Kubernetes has them, and generated code that is not stale."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from grpc_tools import protoc

from dragoman.node import rpc
from dragoman.node.proto import (
    deviceplugin_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    health_v1_pb2,
    health_v1alpha1_pb2,
    podresources_pb2,
    registration_pb2,
)

SOURCE = Path(__file__).parents[2] / "src"

# Facts: k8s.io/kubelet pluginregistration v1, dra v1 and v1beta1, dra-health, podresources v1, deviceplugin v1beta1.
DRA = {
    "Claim": "namespace=1 uid=2 name=3",
    "NodePrepareResourcesRequest": "claims=1*",
    "NodePrepareResourcesResponse": "claims=1*",
    "NodePrepareResourceResponse": "devices=1* error=2",
    "NodeUnprepareResourcesRequest": "claims=1*",
    "NodeUnprepareResourcesResponse": "claims=1*",
    "NodeUnprepareResourceResponse": "error=1",
}
DEVICE = "request_names=1* pool_name=2 device_name=3 cdi_device_ids=4*"
HEALTH = {
    "NodeWatchResourcesRequest": "",
    "NodeWatchResourcesResponse": "devices=1*",
    "DeviceHealth": "device=1 health=2 last_updated_time=3 health_check_timeout_seconds=4 message=5",
    "DeviceIdentifier": "pool_name=1 device_name=2",
}
MESSAGES = {
    "registration": (
        registration_pb2,
        {
            "InfoRequest": "",
            "PluginInfo": "type=1 name=2 endpoint=3 supported_versions=4*",
            "RegistrationStatus": "plugin_registered=1 error=2",
            "RegistrationStatusResponse": "",
        },
    ),
    "dra v1": (dra_v1_pb2, {**DRA, "Device": f"{DEVICE} share_id=5"}),
    "dra v1beta1": (dra_v1beta1_pb2, {**DRA, "Device": DEVICE}),
    "health v1": (health_v1_pb2, HEALTH),
    "health v1alpha1": (health_v1alpha1_pb2, HEALTH),
    "podresources": (
        podresources_pb2,
        {
            "ListPodResourcesRequest": "",
            "ListPodResourcesResponse": "pod_resources=1*",
            "GetPodResourcesRequest": "pod_name=1 pod_namespace=2",
            "GetPodResourcesResponse": "pod_resources=1",
            "PodResources": "name=1 namespace=2 containers=3* cpu_ids=4* memory=5*",
            "ContainerResources": "name=1 devices=2* cpu_ids=3* memory=4* dynamic_resources=5*",
            "DynamicResource": "claim_name=2 claim_namespace=3 claim_resources=4*",
            "ClaimResource": "cdi_devices=1* driver_name=2 pool_name=3 device_name=4 share_id=5",
            "CDIDevice": "name=1",
            "ContainerDevices": "resource_name=1 device_ids=2* topology=3",
            "ContainerMemory": "memory_type=1 size=2 topology=3",
            "TopologyInfo": "nodes=1*",
            "NUMANode": "ID=1",
            "AllocatableResourcesRequest": "",
            "AllocatableResourcesResponse": "devices=1* cpu_ids=2* memory=3*",
        },
    ),
    "device plugin": (
        deviceplugin_pb2,
        {
            "Empty": "",
            "DevicePluginOptions": "pre_start_required=1 get_preferred_allocation_available=2",
            "RegisterRequest": "version=1 endpoint=2 resource_name=3 options=4",
            "ListAndWatchResponse": "devices=1*",
            "Device": "ID=1 health=2 topology=3",
            "TopologyInfo": "nodes=1*",
            "NUMANode": "ID=1",
            "PreferredAllocationRequest": "container_requests=1*",
            "ContainerPreferredAllocationRequest": (
                "available_deviceIDs=1* must_include_deviceIDs=2* allocation_size=3"
            ),
            "PreferredAllocationResponse": "container_responses=1*",
            "ContainerPreferredAllocationResponse": "deviceIDs=1*",
            "AllocateRequest": "container_requests=1*",
            "ContainerAllocateRequest": "devices_ids=1*",
            "AllocateResponse": "container_responses=1*",
            "ContainerAllocateResponse": "envs=1* mounts=2* devices=3* annotations=4* cdi_devices=5*",
            "Mount": "container_path=1 host_path=2 read_only=3",
            "DeviceSpec": "container_path=1 host_path=2 permissions=3",
            "CDIDevice": "name=1",
            "PreStartContainerRequest": "devices_ids=1*",
            "PreStartContainerResponse": "",
        },
    ),
}
PATHS = {
    "/pluginregistration.Registration/GetInfo",
    "/pluginregistration.Registration/NotifyRegistrationStatus",
    "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
    "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
    "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
    "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
    "/v1alpha1.DRAResourceHealth/NodeWatchResources",
    "/v1.DRAResourceHealth/NodeWatchResources",
    "/v1.PodResourcesLister/List",
    "/v1.PodResourcesLister/GetAllocatableResources",
    "/v1.PodResourcesLister/Get",
    "/v1beta1.Registration/Register",
    "/v1beta1.DevicePlugin/GetDevicePluginOptions",
    "/v1beta1.DevicePlugin/ListAndWatch",
    "/v1beta1.DevicePlugin/GetPreferredAllocation",
    "/v1beta1.DevicePlugin/Allocate",
    "/v1beta1.DevicePlugin/PreStartContainer",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_field_numbers(name: str) -> None:
    module, expected = MESSAGES[name]
    found = {}
    for message in module.DESCRIPTOR.message_types_by_name.values():
        fields = sorted(message.fields, key=lambda field: field.number)
        found[message.name] = " ".join(f"{f.name}={f.number}{'*' if f.is_repeated else ''}" for f in fields)
    assert found == expected


def test_service_paths_are_served_under_their_proto_names() -> None:
    services = (
        rpc.REGISTRATION,
        *rpc.DRA_BY_LABEL.values(),
        *rpc.HEALTH_BY_LABEL.values(),
        rpc.POD_RESOURCES,
        rpc.DEVICE_REGISTRATION,
        rpc.DEVICE_PLUGIN,
    )
    assert {f"/{service.name}/{method}" for service in services for method in service.methods} == PATHS
    declared = set()
    for service in services:
        for found in service.messages.DESCRIPTOR.services_by_name.values():
            declared |= {f"/{found.full_name}/{method.name}" for method in found.methods}
    assert declared == PATHS


def test_health_values() -> None:
    assert dict(health_v1_pb2.HealthStatus.items()) == {"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}


@pytest.mark.slow
def test_generated_code_is_what_the_files_say(tmp_path: Path) -> None:
    """`make proto` would change nothing; only the generator's own version may differ."""
    files = [str(path) for path in sorted((SOURCE / "dragoman" / "node" / "proto").glob("*.proto"))]
    assert protoc.main(["protoc", f"--proto_path={SOURCE}", f"--python_out={tmp_path}", *files]) == 0

    def serialized(path: Path) -> list[str]:
        return re.findall(r"AddSerializedFile\((.*)\)", path.read_text())

    for made in sorted((tmp_path / "dragoman" / "node" / "proto").glob("*_pb2.py")):
        assert serialized(made) == serialized(SOURCE / "dragoman" / "node" / "proto" / made.name)
