"""Whose service account token is this? Signed by this server (ES256), believed until what it is bound to goes.

A token is a JWT with upstream's claims; a pod's token dies with the pod. Signatures are checked once a token, what it
is bound to at every use. Source: k8s.io/kubernetes pkg/serviceaccount and pkg/registry/core/serviceaccount/storage.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from dragoman.api.kinds import BY_NAME, Kind
from dragoman.api.meta import format_time
from dragoman.api.shape import Object
from dragoman.apiserver.access.attributes import quoted
from dragoman.apiserver.access.impersonation import ACCOUNT, AUTHENTICATED, NODE_EXTRA, account_groups
from dragoman.apiserver.access.rules import go_list
from dragoman.apiserver.certificates import write_private
from dragoman.apiserver.request import User
from dragoman.apiserver.status import StatusError, bad_request, not_found
from dragoman.apiserver.store import Store, StoredObject
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
AUDIENCES: Final = ("https://kubernetes.default.svc.cluster.local",)
"""Who this server is to a token; tokens for others are not taken at its door."""
DEFAULT_S: Final = 3600
MIN_S, MAX_S = 600, 1 << 32
WARN_ONLY_S: Final = 3607
"""What a pod's volume asks for; such a token lives a year (upstream's service-account-extend-token-expiration)."""
EXTENDED_S: Final = 365 * 24 * 3600
USER_S: Final = 10 * 365 * 24 * 3600
KNOWN_MAX: Final = 4096
_SIZE: Final = 32
_ACCOUNT, _POD, _NODE, _SECRET = (BY_NAME[name] for name in ("ServiceAccount", "Pod", "Node", "Secret"))
_BOUND: Final = {"pod": _POD, "secret": _SECRET, "node": _NODE}


PrivateKey = ec.EllipticCurvePrivateKey


class BadToken(Exception):
    """A token is not accepted; the text says why."""


class Identified(msgspec.Struct, frozen=True):
    """Who a token stands for, and for whom it is meant."""

    user: User
    audiences: tuple[str, ...]


def signing_key(file: Path) -> PrivateKey:
    """The key of a folder, made once."""
    if file.exists():
        key = serialization.load_pem_private_key(file.read_bytes(), None)
        assert isinstance(key, PrivateKey), "no other kind is written there"
        return key
    made = new_key()
    form = serialization.PrivateFormat.PKCS8
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(file, made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return made


def new_key() -> PrivateKey:
    """A fresh key."""
    return ec.generate_private_key(ec.SECP256R1())


class Tokens:
    """The tokens of one server."""

    def __init__(self, store: Store, clock: Clock, entropy: Entropy, key: PrivateKey) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._key = key
        self._public = key.public_key()
        numbers = self._public.public_numbers()
        self._point = _part(numbers.x.to_bytes(_SIZE, "big")), _part(numbers.y.to_bytes(_SIZE, "big"))
        self._id = _part(hashlib.sha256(".".join(self._point).encode()).digest())
        self._known: dict[str, Object] = {}

    # ---- issuing

    def issue(self, account: StoredObject, request: Object, *, dry_run: bool = False) -> Object:
        """authentication.k8s.io/v1 TokenRequest with its status. Raises 400, 404, 409, 422."""
        spec: Object = request.get("spec") or {}
        meta: Object = request.get("metadata") or {}
        seconds = spec.get("expirationSeconds")
        seconds = DEFAULT_S if seconds is None else seconds
        _check(account, meta, spec, seconds)
        audiences = list(spec.get("audiences") or AUDIENCES)
        bound = self._bound(account, spec.get("boundObjectRef"))
        now = self._clock.utc()
        lasts = seconds
        if "pod" in bound and seconds == WARN_ONLY_S and set(audiences) <= set(AUDIENCES):
            lasts = EXTENDED_S
        claims = {
            "iss": ISSUER,
            "sub": f"{ACCOUNT}{account.namespace}:{account.name}",
            "aud": audiences,
            "iat": int(now.timestamp()),
            "nbf": int(now.timestamp()),
            "exp": int(now.timestamp()) + lasts,
            "jti": self._entropy.uuid4(),
            "kubernetes.io": {
                "namespace": account.namespace,
                "serviceaccount": {"name": account.name, "uid": account.uid},
                **bound,
            },
        }
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": account.name,
                "namespace": account.namespace,
                "uid": account.uid,
                "creationTimestamp": format_time(now),
            },
            "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {
                "token": "" if dry_run else self.sign(claims),
                "expirationTimestamp": format_time(now + timedelta(seconds=seconds)),
            },
        }

    def for_user(self, name: str, groups: tuple[str, ...] = ()) -> str:
        """A token of a user who is no service account, for a kubeconfig; it lives ten years."""
        now = int(self._clock.now())
        listed = list(dict.fromkeys((*groups, AUTHENTICATED)))
        life = {"iat": now, "nbf": now, "exp": now + USER_S, "jti": self._entropy.uuid4()}
        return self.sign({"iss": ISSUER, "sub": name, "aud": list(AUDIENCES), "groups": listed, **life})

    def _bound(self, account: StoredObject, reference: Any) -> Object:
        """The claims about what a token is bound to."""
        if not reference:
            return {}
        name, uid = str(reference.get("name") or ""), reference.get("uid")
        version, kind_name = reference.get("apiVersion"), reference.get("kind")
        kind = {"Pod": _POD, "Node": _NODE, "Secret": _SECRET}.get(str(kind_name)) if version == "v1" else None
        if kind is None:
            group, _, number = str(version or "").rpartition("/")
            raise bad_request(f"cannot bind token to object of type {group}/{number}, Kind={kind_name}")
        record = self._store.get(kind, account.namespace if kind.namespaced else "", name)
        if record is None:
            raise not_found(kind, name)
        claims: Object = {kind.kind.lower(): {"name": name, "uid": record.uid}}
        if kind is _POD:
            spec: Object = record.decode()["spec"]
            if spec.get("serviceAccountName") != account.name:
                raise bad_request(
                    f"cannot bind token for serviceaccount {quoted(account.name)} to pod running with different "
                    "serviceaccount name."
                )
            node = spec.get("nodeName")
            if node:
                found = self._store.get(_NODE, "", node)
                claims["node"] = {"name": node, **({"uid": found.uid} if found else {})}
        if uid and uid != record.uid:
            raise StatusError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {kind_name} "{name}": the UID in the bound object reference ({uid}) '
                "does not match the UID in record. The object might have been deleted and then recreated",
                {"name": name, "kind": kind_name},
            )
        return claims

    def sign(self, claims: Object) -> str:
        """A JWT."""
        head = _part(msgspec.json.encode({"alg": "ES256", "kid": self._id, "typ": "JWT"}))
        text = f"{head}.{_part(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_part(r.to_bytes(_SIZE, 'big') + s.to_bytes(_SIZE, 'big'))}"

    # ---- believing

    def identify(self, token: str, audiences: tuple[str, ...] = AUDIENCES) -> Identified:
        """Who holds a token that is meant for one of the audiences. Raises BadToken."""
        claims = self._claims(token)
        meant = tuple(audience for audience in claims["aud"] if audience in audiences)
        if not meant:
            raise BadToken(
                f"invalid bearer token, token audiences {go_list(claims['aud'])} is invalid for the target audiences "
                f"{go_list(audiences)}"
            )
        now = self._clock.now()
        if claims["exp"] < now:
            raise BadToken("service account token has expired")
        if claims["nbf"] > now + 60:
            raise BadToken("service account token is not valid yet")
        if "kubernetes.io" not in claims:
            return Identified(User(claims["sub"], tuple(claims["groups"])), meant)
        return Identified(self._user(claims), meant)

    def _claims(self, token: str) -> Object:
        known = self._known.get(token)
        if known is not None:
            return known
        text, _, signature = token.rpartition(".")
        try:
            raw = _whole(signature)
            r, s = int.from_bytes(raw[:_SIZE], "big"), int.from_bytes(raw[_SIZE:], "big")
            self._public.verify(encode_dss_signature(r, s), text.encode(), ec.ECDSA(hashes.SHA256()))
            claims: Object = msgspec.json.decode(_whole(text.split(".")[1]))
        except (InvalidSignature, IndexError, ValueError, UnicodeEncodeError):
            raise BadToken("invalid bearer token") from None
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[token] = claims
        return claims

    def _user(self, claims: Object) -> User:
        reported: Object = claims["kubernetes.io"]
        namespace, account = reported["namespace"], reported["serviceaccount"]
        found = self._store.get(_ACCOUNT, namespace, account["name"])
        if found is None:
            raise BadToken(f'serviceaccounts "{account["name"]}" not found')
        if found.uid != account["uid"]:
            raise BadToken(f"service account UID ({found.uid}) does not match claim ({account['uid']})")
        for field, kind in _BOUND.items():
            if field in reported and not (field == "node" and "pod" in reported):
                self._still_there(kind, namespace, reported[field])
        extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        for field, prefix in (("pod", "pod"), ("node", "node")):
            if field in reported:
                extra[f"authentication.kubernetes.io/{prefix}-name"] = (reported[field]["name"],)
                if "uid" in reported[field]:
                    extra[f"authentication.kubernetes.io/{prefix}-uid"] = (reported[field]["uid"],)
        assert NODE_EXTRA in extra or "node" not in reported, "the node's name is what node rights are read from"
        return User(claims["sub"], account_groups(namespace), account["uid"], extra)

    def _still_there(self, kind: Kind, namespace: str, reference: Object) -> None:
        record = self._store.get(kind, namespace if kind.namespaced else "", reference["name"])
        if record is None:
            raise BadToken("service account token has been invalidated")
        if record.uid != reference["uid"]:
            what = kind.kind.lower()
            name = kind.kind if kind is _SECRET else what
            claimed = f"service account {what} ref claim ({reference['uid']})"
            raise BadToken(f"{name} UID ({record.uid}) does not match {claimed}")

    # ---- discovery (OIDC)

    def key_set(self) -> Object:
        """The JSON Web Key Set of the public key."""
        x, y = self._point
        key = {"use": "sig", "kty": "EC", "kid": self._id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}
        return {"keys": [key]}

    def configuration(self, server: str) -> Object:
        """The OpenID provider configuration; server is where the key set can be had."""
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{server}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }


def _check(account: StoredObject, meta: Object, spec: Object, seconds: int) -> None:
    faults: list[tuple[str, str]] = []
    if meta.get("name") not in (None, "", account.name):
        faults.append(("metadata.name", f"{quoted(meta['name'])}: must match the service account name if specified"))
    elif meta.get("namespace") not in (None, "", account.namespace):
        text = f"{quoted(meta['namespace'])}: must match the service account namespace if specified"
        faults.append(("metadata.namespace", text))
    elif seconds < MIN_S:
        faults.append(("spec.expirationSeconds", f"{seconds}: may not specify a duration less than 10 minutes"))
    elif seconds > MAX_S:
        faults.append(("spec.expirationSeconds", f"{seconds}: may not specify a duration larger than 2^32 seconds"))
    if meta.get("uid") not in (None, "", account.uid):
        raise StatusError(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "{account.name}": the UID in the '
            f"token request ({meta['uid']}) does not match the UID of the service account ({account.uid})",
        )
    if faults:
        (path, text), *_ = faults
        name = account.name if path.startswith("metadata") else ""
        message = f'TokenRequest.authentication.k8s.io "{name}" is invalid: {path}: Invalid value: {text}'
        cause = {"reason": "FieldValueInvalid", "message": f"Invalid value: {text}", "field": path}
        details: Object = {"name": name, "group": "authentication.k8s.io", "kind": "TokenRequest", "causes": [cause]}
        raise StatusError(422, "Invalid", message, details)


def _part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _whole(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
