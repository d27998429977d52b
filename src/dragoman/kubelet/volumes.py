"""What is in a pod's volumes? ConfigMaps, Secrets, projections, fields of the pod, and empty folders, as folders in
memory.

A volume whose object is missing keeps the pod waiting, as a kubelet does (`CannotMount`). hostPath and claims for
storage are empty folders that last as long as the node agent. It never writes to the API, but for the tokens that it
asks for.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from typing import Any

from dragoman.api.kinds import kind_of
from dragoman.api.shape import Object
from dragoman.apiserver.selectors import accepts, of_object
from dragoman.cluster.client import Client
from dragoman.errors import DragomanError, NotFound
from dragoman.kubelet.pod import KubeletContainer, KubeletPod
from dragoman.kubelet.shell.files import Entry, FileMount, Folder

FieldText = Callable[[KubeletPod, KubeletContainer | None, Any], str]
"""The text of a fieldRef or resourceFieldRef entry."""
MODE = 0o644
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
TOKEN_S = 3607


class CannotMount(Exception):
    """Why a volume cannot be set up."""


class Volumes:
    """The volumes of one node's pods, by pod uid and volume name."""

    def __init__(self, client: Client, fields: FieldText) -> None:
        self.client = client
        self.fields = fields
        self._pods: dict[str, dict[str, Folder]] = {}
        self._shared: dict[str, Folder] = {}
        self._tokens: dict[tuple[str, str, str], tuple[float, str]] = {}
        """By pod uid, audience and path: when the token is to be replaced, and the token."""

    async def of(self, pod: KubeletPod, now: float) -> dict[str, Folder]:
        """The folders of a pod's volumes, made at the first call. Raises CannotMount."""
        known = self._pods.get(pod.uid)
        if known is None:
            made: dict[str, Folder] = {}
            for volume in pod.spec.volumes:
                made[volume.get("name", "")] = await self._folder(pod, volume, now)
            known = self._pods[pod.uid] = made
        return known

    def known(self, pod_uid: str) -> dict[str, Folder]:
        """The folders that were made for a pod."""
        return self._pods.get(pod_uid, {})

    async def refresh(self, pod: KubeletPod, now: float) -> None:
        """Bring what comes from the API up to date; what has gone meanwhile stays as it was."""
        for volume in pod.spec.volumes:
            folder = self._pods.get(pod.uid, {}).get(volume.get("name", ""))
            if folder is None or not volume.keys() & {"configMap", "secret", "projected", "downwardAPI"}:
                continue
            try:
                folder.entries = (await self._folder(pod, volume, now)).entries
            except CannotMount:
                continue

    def forget(self, pod_uid: str) -> None:
        """The pod is over."""
        self._pods.pop(pod_uid, None)
        for key in [key for key in self._tokens if key[0] == pod_uid]:
            del self._tokens[key]

    def mounts(
        self, pod: KubeletPod, container: KubeletContainer, expand: Callable[[str], str]
    ) -> tuple[FileMount, ...]:
        """The mounts of a container. Raises CannotMount for a volume that the pod does not have."""
        made: list[FileMount] = []
        for mount in container.volume_mounts:
            folder = self.known(pod.uid).get(mount.name)
            if folder is None:
                raise CannotMount(f'volume "{mount.name}" is not in the pod')
            asked = mount.sub_path or expand(mount.sub_path_expr)
            if asked.startswith("/") or ".." in asked.split("/"):
                raise CannotMount(f"subPath {asked!r} of volume {mount.name} must be a relative path without ..")
            below = asked.strip("/")
            if below and below not in folder.entries:
                folder.put(below, Entry("folder", mode=0o755))
            made.append(FileMount("/" + mount.mount_path.strip("/"), folder, below, mount.read_only, mount.name))
        return tuple(made)

    async def _folder(self, pod: KubeletPod, volume: Any, now: float) -> Folder:
        folder = Folder(now=now)
        name = volume.get("name", "")
        for source, add in self._sources().items():
            if (asked := volume.get(source)) is not None:
                folder.from_api = True
                try:
                    await add(folder, pod, asked, now)
                except DragomanError as error:
                    raise CannotMount(f'MountVolume.SetUp failed for volume "{name}" : {error}') from None
                return folder
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if volume.get("ephemeral") is not None:
            claim = f"{pod.metadata.name}-{name}"
        if claim:
            await self._bound(pod, claim, name)
            return self._shared.setdefault(f"persistentVolumeClaim/{pod.metadata.namespace}/{claim}", folder)
        if (asked := volume.get("hostPath")) is not None:
            return self._shared.setdefault(f"hostPath/{asked.get('path')}", folder)
        return folder

    async def _bound(self, pod: KubeletPod, name: str, volume: str) -> None:
        """Raises CannotMount unless there is a PersistentVolumeClaim of that name, bound to a volume."""
        try:
            claim = await self.client.get(kind_of("PersistentVolumeClaim"), name, pod.metadata.namespace)
        except DragomanError as error:
            text = f"error processing PVC {pod.metadata.namespace}/{name}: failed to fetch PVC from API server: {error}"
            raise CannotMount(f'MountVolume.SetUp failed for volume "{volume}" : {text}') from None
        if (claim.get("status") or {}).get("phase") != "Bound" or not claim["spec"].get("volumeName"):
            text = f"error processing PVC {pod.metadata.namespace}/{name}: PVC is not bound"
            raise CannotMount(f'MountVolume.SetUp failed for volume "{volume}" : {text}')

    def _sources(self) -> dict[str, Callable[[Folder, KubeletPod, Any, float], Awaitable[None]]]:
        return {
            "configMap": self._config_map,
            "secret": self._secret,
            "downwardAPI": self._downward,
            "projected": self._projected,
        }

    async def _projected(self, folder: Folder, pod: KubeletPod, asked: Any, now: float) -> None:
        mode = asked.get("defaultMode", MODE)
        for source in asked.get("sources") or []:
            for kind, add in self._sources().items():
                if (part := source.get(kind)) is not None and kind != "projected":
                    await add(folder, pod, {"defaultMode": mode, **part}, now)
            if (bundle := source.get("clusterTrustBundle")) is not None:
                folder.put(bundle["path"], Entry("file", await self._trust(bundle), mode, now))
            if (token := source.get("serviceAccountToken")) is not None:
                folder.put(token["path"], Entry("file", (await self._token(pod, token, now)).encode(), mode, now))

    async def _trust(self, asked: Any) -> bytes:
        """The certificates of ClusterTrustBundles, each once. Raises NotFound."""
        kind = kind_of("ClusterTrustBundle")
        if name := asked.get("name"):
            try:
                found = [await self.client.get(kind, name)]
            except NotFound:
                if asked.get("optional"):
                    return b""
                raise
        else:
            # No selector matches nothing, an empty one everything of the signer.
            selector = of_object(asked.get("labelSelector"))
            field = f"spec.signerName={asked.get('signerName', '')}"
            listed = (await self.client.list(kind, field_selector=field)).items if selector is not None else []
            found = [b for b in listed if accepts(selector or (), b["metadata"].get("labels") or {})]
            if not found and not asked.get("optional"):
                raise NotFound("combination of signerName and labelSelector matched zero ClusterTrustBundles")
        blocks: dict[str, None] = {}
        for bundle in found:
            blocks.update(dict.fromkeys(_CERTIFICATE.findall(bundle["spec"].get("trustBundle", ""))))
        return "".join(f"{block}\n" for block in blocks).encode()

    async def _token(self, pod: KubeletPod, asked: Any, now: float) -> str:
        """A token, the same until four fifths of its life are over."""
        key = (pod.uid, asked.get("audience") or "", asked["path"])
        until, token = self._tokens.get(key, (0.0, ""))
        if now >= until:
            token = await self._new_token(pod, asked)
            self._tokens[key] = now + 0.8 * (asked.get("expirationSeconds") or TOKEN_S), token
        return token

    async def _new_token(self, pod: KubeletPod, asked: Any) -> str:
        name = pod.spec.service_account_name or "default"
        spec = {
            "audiences": [asked["audience"]] if asked.get("audience") else [],
            "expirationSeconds": asked.get("expirationSeconds") or TOKEN_S,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.uid},
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self.client.create(
            kind_of("ServiceAccount"), body, pod.metadata.namespace, name=name, subresource="token"
        )
        return str(answer["status"]["token"])

    async def _config_map(self, folder: Folder, pod: KubeletPod, asked: Any, now: float) -> None:
        found = await self._object("ConfigMap", pod, asked.get("name", ""), optional=bool(asked.get("optional")))
        data = {key: str(text).encode() for key, text in (found.get("data") or {}).items()}
        data |= {key: base64.b64decode(text) for key, text in (found.get("binaryData") or {}).items()}
        _put(folder, data, asked, now)

    async def _secret(self, folder: Folder, pod: KubeletPod, asked: Any, now: float) -> None:
        name = asked.get("secretName") or asked.get("name", "")
        found = await self._object("Secret", pod, name, optional=bool(asked.get("optional")))
        _put(folder, {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}, asked, now)

    async def _object(self, kind: str, pod: KubeletPod, name: str, *, optional: bool) -> Object:
        try:
            return await self.client.get(kind_of(kind), name, pod.metadata.namespace)
        except NotFound:
            if optional:
                return {}
            raise NotFound(f'{kind.lower()} "{name}" not found') from None

    async def _downward(self, folder: Folder, pod: KubeletPod, asked: Any, now: float) -> None:
        for item in asked.get("items") or []:
            mode = item.get("mode") or asked.get("defaultMode") or MODE
            folder.put(item["path"], Entry("file", self.fields(pod, None, item).encode(), mode, now))


def _put(folder: Folder, data: dict[str, bytes], asked: Any, now: float) -> None:
    mode = asked.get("defaultMode") or MODE
    items = asked.get("items")
    if not items:
        for key, value in data.items():
            folder.put(key, Entry("file", value, mode, now))
        return
    for item in items:
        if item["key"] not in data:
            if asked.get("optional"):
                continue
            raise NotFound(f"references non-existent config key: {item['key']}")
        folder.put(item["path"], Entry("file", data[item["key"]], item.get("mode") or mode, now))
