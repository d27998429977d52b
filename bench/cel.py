"""How fast are device selectors? JSON lines: evaluations a second, and ratios over other engines.

    python bench/cel.py [--peer PATH]

over_google: our evaluations a second over those of Google's C++ runtime as a Python extension, on the same values
(only what it can express). over_kubernetes: over those of Kubernetes' own code, where the peer of
bench/upstream/selectors is named; a Go program without Python in between. fleet: 40,000 devices of five models, every
device evaluated, and once for each distinct tuple of what the selector reads. Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Callable
from typing import Any

import msgspec
from cel_expr_python import cel

from dragoman import __version__
from dragoman.api.resource import Device, DeviceAttribute, DeviceCapacity
from dragoman.api.selectors import STORED, DeviceView, Selector, compile_selector, device_view, environment
from dragoman.cel.expression import compile_expression
from dragoman.values.quantity import Quantity

DRIVER = "gpu.example.com"
ATTRIBUTES: dict[str, Any] = {
    "model": {"string": "LATEST-GPU-MODEL"},
    "index": {"int": 3},
    "shared": {"bool": False},
    "driverVersion": {"version": "1.2.3"},
    "uuid": {"string": "gpu-18db0e85-99e9-c746-8531-ffeb86328b39"},
}
CAPACITY = {"memory": "80Gi"}
OF = f"device.attributes['{DRIVER}']"
SELECTORS = {
    "driver": f"device.driver == '{DRIVER}'",
    "string": f"{OF}.model == 'LATEST-GPU-MODEL'",
    "integer": f"{OF}.index >= 2",
    "three terms": f"device.driver == '{DRIVER}' && {OF}.model == 'LATEST-GPU-MODEL' && {OF}.index == 3",
    "presence": f"'model' in {OF} && !{OF}.shared",
    "list": f"{OF}.model in ['A', 'B', 'LATEST-GPU-MODEL']",
    "loop": f"[1, 2, 3].exists(x, x == {OF}.index)",
    "regular expression": f"{OF}.uuid.matches('^gpu-[0-9a-f-]+$')",
    "quantity": f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0",
    "version": f"{OF}.driverVersion.isGreaterThan(semver('1.0.0'))",
    "binding": f"cel.bind(gpu, {OF}, gpu.index == 3 && gpu.model.startsWith('LATEST'))",
}
SECONDS = 0.2
KUBERNETES_REPEATS = 20_000


def report(name: str, **figures: Any) -> None:
    """One line of output."""
    machine = {"python": platform.python_version(), "machine": platform.machine(), "dragoman": __version__}
    print(json.dumps({"bench": name, **figures, **machine}))


def rate(run: Callable[[], object]) -> float:
    """How often a second; the best of three rounds."""
    best = 0.0
    for _ in range(3):
        count, start = 0, time.perf_counter()
        while (took := time.perf_counter() - start) < SECONDS:
            for _ in range(200):
                run()
            count += 200
        best = max(best, count / took)
    return best


def device(**changes: Any) -> Device:
    """A GPU."""
    return Device(
        name="gpu-0",
        attributes={key: msgspec.convert(value, DeviceAttribute) for key, value in {**ATTRIBUTES, **changes}.items()},
        capacity={key: DeviceCapacity(value=Quantity.parse(value)) for key, value in CAPACITY.items()},
    )


def selector(text: str) -> Selector:
    """Compiled, which must succeed."""
    found = compile_selector(text)
    assert isinstance(found, Selector), found
    return found


def over_google(text: str) -> float | None:
    """Evaluations a second of Google's runtime; None where it has not what the selector needs."""
    within = cel.NewEnv(variables={"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})
    try:
        expression = within.compile(text)
    except Exception:  # an error of the extension, of no class of its own
        return None
    plain = {"model": "LATEST-GPU-MODEL", "index": 3, "shared": False, "uuid": ATTRIBUTES["uuid"]["string"]}
    values = {"device": {"driver": DRIVER, "attributes": {DRIVER: plain}}}
    activation = within.Activation(values)
    if expression.eval(activation).plain_value() is not True:
        return None
    return rate(lambda: expression.eval(activation).plain_value())


def over_kubernetes(text: str, peer: str) -> float:
    """Evaluations a second of Kubernetes' own code."""
    asked = {"expression": text, "driver": DRIVER, "attributes": ATTRIBUTES, "capacity": CAPACITY}
    line = json.dumps({**asked, "repeat": KUBERNETES_REPEATS})
    done = subprocess.run([peer], input=line, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["match"] is True, answer
    return KUBERNETES_REPEATS / float(answer["seconds"])


def selectors(peer: str) -> None:
    """Each selector on one device."""
    view = device_view(device(), DRIVER)
    for name, text in SELECTORS.items():
        found = selector(text)
        assert found.match(view) is True, (text, found.match(view))
        ours = rate(lambda found=found: found.match(view))  # type: ignore[misc]
        figures: dict[str, Any] = {"a_second": round(ours)}
        google = over_google(text)
        if google is not None:
            figures["over_google"] = round(ours / google, 2)
        if peer:
            figures["over_kubernetes"] = round(ours / over_kubernetes(text, peer), 2)
        figures["compile_ms"] = round(1000 / rate(lambda text=text: compile_expression(text, environment(STORED))), 3)  # type: ignore[misc]
        report(f"selector: {name}", **figures)


def fleet(devices: int = 40_000) -> None:
    """Many devices of five models, each with a uuid of its own."""
    gpus = [device(model={"string": f"MODEL-{n % 5}"}, uuid={"string": f"gpu-{n}"}) for n in range(devices)]
    start = time.perf_counter()
    views = [device_view(gpu, DRIVER) for gpu in gpus]
    made = time.perf_counter() - start
    found = selector(f"device.driver == '{DRIVER}' && {OF}.model == 'MODEL-3'")
    start = time.perf_counter()
    each = [found.match(view) for view in views]
    evaluated = time.perf_counter() - start
    start = time.perf_counter()
    memo: dict[tuple[object, ...], object] = {}
    once = [_remembered(memo, found, view) for view in views]
    remembered = time.perf_counter() - start
    assert each == once
    report(
        "fleet",
        devices=devices,
        views_s=round(made, 3),
        each_s=round(evaluated, 3),
        once_a_tuple_s=round(remembered, 3),
        tuples=len(memo),
    )


def _remembered(memo: dict[tuple[object, ...], object], found: Selector, view: DeviceView) -> object:
    key = found.reads.key(view)
    if key not in memo:
        memo[key] = found.match(view)
    return memo[key]


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default="", help="the program made of bench/upstream/selectors")
    selectors(parser.parse_args().peer)
    fleet()


if __name__ == "__main__":
    main()
