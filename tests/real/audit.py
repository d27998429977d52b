"""What did the daemons ask of a real API server? From its audit log: which verbs of their roles were used or lacking."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Object = dict[str, Any]
CHECKED_INSIDE = {"resourceclaims/binding", "resourceclaims/driver"}
"""Rights that the API server asks for while it serves a request for another resource: no request has their name."""


class Asked(NamedTuple):
    """One kind of request."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


def flags(folder: Path, namespace: str) -> tuple[str, ...]:
    """Of kube-apiserver, to log what the service accounts of a namespace ask."""
    rules = [
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{namespace}"], "omitStages": ["RequestReceived"]},
        {"level": "None"},
    ]
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    return (f"--audit-policy-file={policy}", f"--audit-log-path={folder}/audit.log", "--audit-log-mode=blocking-strict")


def read(folder: Path) -> tuple[dict[str, set[Asked]], list[str]]:
    """What each account asked and got, and what it was forbidden."""
    asked: dict[str, set[Asked]] = {}
    forbidden = []
    for line in (folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef")
        if reference is None:
            continue
        account = event["user"]["username"].rpartition(":")[2]
        sub = reference.get("subresource")
        resource = reference["resource"] + (f"/{sub}" if sub else "")
        one = Asked(
            event["verb"],
            reference.get("apiGroup", ""),
            resource,
            reference.get("namespace", ""),
            reference.get("name", ""),
        )
        if event["annotations"].get("authorization.k8s.io/decision") == "allow":
            asked.setdefault(account, set()).add(one)
        else:
            forbidden.append(f"{account}: {one}: {(event.get('responseStatus') or {}).get('message', '')}")
    return asked, forbidden


def unused(roles: Iterable[Object], asked: set[Asked]) -> list[str]:
    """What the roles of an account allow and it never asked for."""
    found = []
    for role in roles:
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    if resource not in CHECKED_INSIDE and not any(
                        _is_use(one, rule, namespace, resource, verb) for one in asked
                    ):
                        where = f" in {namespace}" if namespace else ""
                        found.append(f"{role['metadata']['name']}: {verb} {resource}.{rule['apiGroups'][0]}{where}")
    return found


def _is_use(one: Asked, rule: Object, namespace: str, resource: str, verb: str) -> bool:
    if one.verb != verb or one.resource != resource or one.group not in rule["apiGroups"]:
        return False
    if namespace and one.namespace != namespace:
        return False
    return not rule.get("resourceNames") or one.name in rule["resourceNames"]
