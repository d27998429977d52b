"""Under which service account does a pod run, and what of it does the pod see? Upstream's ServiceAccount admission.

The token, the cluster's CA and the namespace are mounted into every container unless pod or account say no.
Source: k8s.io/kubernetes plugin/pkg/admission/serviceaccount.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.api.kinds import BY_NAME
from dragoman.api.shape import Object
from dragoman.apiserver.admission.attributes import AdmissionPlugin, Attributes
from dragoman.apiserver.lookup import Lookup
from dragoman.apiserver.status import forbidden

SERVICE_ACCOUNT = BY_NAME["ServiceAccount"]
POD = BY_NAME["Pod"]
MIRROR: Final = "kubernetes.io/config.mirror"
ENFORCE: Final = "kubernetes.io/enforce-mountable-secrets"
VOLUME: Final = "kube-api-access-"
MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_S: Final = 3607
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))


class ServiceAccounts(AdmissionPlugin):
    """Names the account of a new pod, which must exist, and mounts its token."""

    kinds = frozenset((POD,))

    def mutate(self, lookup: Lookup, attributes: Attributes) -> None:
        """`default` where the pod names none."""
        pod = attributes.obj
        if attributes.operation != "CREATE" or attributes.subresource or not pod:
            return
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            return
        spec = pod.setdefault("spec", {})
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = _account(lookup, attributes, name)
        if _automounts(account, spec):
            _mount(lookup, spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": entry.get("name", "")} for entry in account["imagePullSecrets"]]

    def validate(self, lookup: Lookup, attributes: Attributes) -> None:
        """Mirror pods see no secrets; an account may restrict its pods to the secrets that it lists."""
        pod = attributes.obj
        if attributes.operation != "CREATE" or attributes.subresource or not pod:
            return
        spec: Object = pod.get("spec") or {}
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            if spec.get("serviceAccountName"):
                raise forbidden(POD, attributes.name, "a mirror pod may not reference service accounts")
            return
        account = _account(lookup, attributes, spec.get("serviceAccountName") or "default")
        if (account["metadata"].get("annotations") or {}).get(ENFORCE) in _TRUE:
            fault = _not_mountable(account, spec)
            if fault:
                raise forbidden(POD, attributes.name, fault)


def _account(lookup: Lookup, attributes: Attributes, name: str) -> Object:
    record = lookup.find(SERVICE_ACCOUNT, name, attributes.namespace)
    if record is None:
        raise forbidden(
            POD,
            attributes.name,
            f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found',
        )
    return record.decode()


def _automounts(account: Object, spec: Object) -> bool:
    for place in (spec, account):
        wanted = place.get("automountServiceAccountToken")
        if wanted is not None:
            return bool(wanted)
    return True


def _mount(lookup: Lookup, spec: Object) -> None:
    volumes = spec.get("volumes") or []
    known = next((v["name"] for v in volumes if str(v.get("name", "")).startswith(VOLUME)), "")
    containers = [c for field in ("initContainers", "containers") for c in spec.get(field) or ()]
    bare = [
        c
        for c in containers
        if isinstance(c, dict) and all(m.get("mountPath") != MOUNT_PATH for m in c.get("volumeMounts") or ())
    ]
    if not bare:
        return
    name = known or VOLUME + lookup.suffix()
    for container in bare:
        mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    if not known:
        spec["volumes"] = [*volumes, {"name": name, "projected": {"sources": _sources(), "defaultMode": 420}}]


def _sources() -> list[Any]:
    certificate = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_S, "path": "token"}},
        {"configMap": certificate},
        {"downwardAPI": {"items": [namespace]}},
    ]


def _not_mountable(account: Object, spec: Object) -> str:
    """What the account's list of secrets does not allow."""
    listed = {entry.get("name") for entry in account.get("secrets") or ()}
    name = account["metadata"]["name"]
    tail = f"is not allowed because service account {name} does not reference that secret"
    for volume in spec.get("volumes") or ():
        secret = (volume.get("secret") or {}).get("secretName")
        if secret and secret not in listed:
            return f'volume with secret.secretName="{secret}" {tail}'
    for field, what in (("initContainers", "init container"), ("containers", "container")):
        for container in spec.get(field) or ():
            for entry in container.get("env") or ():
                secret = ((entry.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name")
                if secret and secret not in listed:
                    where = f"{what} {container['name']} with envVar {entry['name']} referencing"
                    return f'{where} secret.secretName="{secret}" {tail}'
            for entry in container.get("envFrom") or ():
                secret = (entry.get("secretRef") or {}).get("name")
                if secret and secret not in listed:
                    return f'{what} {container["name"]} with envFrom referencing secret.secretName="{secret}" {tail}'
    pull = {entry.get("name") for entry in account.get("imagePullSecrets") or ()}
    for index, entry in enumerate(spec.get("imagePullSecrets") or ()):
        if entry.get("name") not in pull:
            return f'imagePullSecrets[{index}].name="{entry.get("name")}" {tail.removesuffix("secret")}imagePullSecret'
    return ""
