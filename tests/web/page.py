"""A page over the objects of examples/, with what waits, is shared and is tainted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from dragoman.cli import source
from dragoman.cli.web import settings_of
from dragoman.runtime.clock import Clock
from dragoman.runtime.entropy import Entropy
from dragoman.web.server import WebPage, serving
from dragoman.web.state import FixedState, PageState

DRIVER = "gpu.example.com"
CLUSTER = f"""\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpus}}
spec: {{selectors: [{{cel: {{expression: 'device.driver == "{DRIVER}"'}}}}]}}
---
apiVersion: v1
kind: Node
metadata: {{name: node-2, labels: {{example.com/rack: west}}}}
status: {{allocatable: {{cpu: "8", pods: "10"}}, conditions: [{{type: Ready, status: "True"}}]}}
---
apiVersion: v1
kind: Node
metadata: {{name: node-10, labels: {{example.com/rack: east}}}}
status: {{allocatable: {{cpu: "8", pods: "10"}}, conditions: [{{type: Ready, status: "False", lastTransitionTime: "2026-01-02T03:04:05Z"}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: two}}
spec:
  driver: {DRIVER}
  nodeName: node-2
  pool: {{name: node-2, generation: 1, resourceSliceCount: 1}}
  devices:
  - {{name: gpu-0, attributes: {{model: {{string: A9}}, numaNode: {{int: 0}}}}}}
  - {{name: gpu-1, attributes: {{model: {{string: B7}}, numaNode: {{int: 1}}}}}}
  - name: gpu-2
    attributes: {{model: {{string: B7}}, numaNode: {{int: 1}}}}
    taints: [{{key: example.com/hot, effect: NoSchedule, timeAdded: "2026-01-02T03:05:00Z"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: ten}}
spec:
  driver: {DRIVER}
  nodeName: node-10
  pool: {{name: node-10, generation: 1, resourceSliceCount: 1}}
  devices: [{{name: gpu-0, attributes: {{model: {{string: A9}}}}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: mine, namespace: lab, uid: u-1, creationTimestamp: "2026-01-02T03:00:00Z"}}
spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpus}}}}]}}}}
status:
  reservedFor: [{{resource: pods, name: first, uid: u-2}}]
  allocation:
    allocationTimestamp: "2026-01-02T03:00:04Z"
    devices: {{results: [{{request: gpu, driver: {DRIVER}, pool: node-2, device: gpu-0}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: first, namespace: lab, uid: u-2}}
spec:
  nodeName: node-2
  containers: [{{name: c, image: registry.example/app:1}}]
  resourceClaims: [{{name: gpu, resourceClaimName: mine}}]
status: {{phase: Running}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: three, namespace: lab}}
spec: {{spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpus, count: 3}}}}]}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: waits-a, namespace: lab}}
spec:
  containers: [{{name: c, image: registry.example/app:1}}]
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: three}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: waits-b, namespace: lab}}
spec:
  containers: [{{name: c, image: registry.example/app:1}}]
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: three}}]
---
apiVersion: v1
kind: Event
metadata: {{name: e-1, namespace: lab}}
involvedObject: {{kind: Pod, namespace: lab, name: waits-a}}
type: Warning
reason: FailedScheduling
message: nothing fits <img src=x onerror=alert(1)>
lastTimestamp: "2026-01-02T03:06:00Z"
"""


class Browser:
    """Requests as a browser that has opened the page sends them."""

    def __init__(self, page: WebPage, session: aiohttp.ClientSession) -> None:
        self.page = page
        self.base = f"http://127.0.0.1:{page.access.port}"
        self.session = session
        self.said: list[str] = []

    async def opened(self) -> Browser:
        """The address is opened, the cookie kept."""
        async with self.session.get(self.page.access.address()) as answer:
            assert answer.status == 200
        return self

    async def get(self, path: str, **query: str) -> dict[str, object]:
        """JSON of the API."""
        async with self.session.get(f"{self.base}/api/{path}", params=query) as answer:
            body: dict[str, object] = await answer.json()
            return body | {"status": answer.status}

    async def post(self, path: str, body: object) -> dict[str, object]:
        """JSON of the API, asked by the page itself."""
        headers = {"Origin": self.base}
        async with self.session.post(f"{self.base}/api/{path}", json=body, headers=headers) as answer:
            found: dict[str, object] = await answer.json()
            return found | {"status": answer.status}


@asynccontextmanager
async def page_of(file: str) -> AsyncIterator[Browser]:
    """A page over a file, not opened yet."""
    import argparse

    from dragoman.cli import web

    parser = argparse.ArgumentParser()
    web.arguments(parser)
    args = parser.parse_args(["-f", file])
    world = source.from_files(args.filename)
    state = PageState(1, world.snapshot, world.order)
    fixed = FixedState("cluster.yaml", state, world.events)
    said: list[str] = []
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        serving(fixed, settings_of(args), Clock(), Entropy(), say=said.append) as page,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        browser = Browser(page, session)
        browser.said = said
        yield browser
