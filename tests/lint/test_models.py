from __future__ import annotations

from dragoman.lint.models import MODELS
from dragoman.profiles.load import Catalog
from dragoman.profiles.mig import shapes_of


def test_models_are_those_of_the_machine_profiles() -> None:
    catalog = Catalog.packaged()
    seen = 0
    for name, gpu in catalog.gpus.items():
        model = MODELS[name]
        seen += 1
        assert (model.memory_mib, model.architecture) == (gpu.memory_mib, gpu.architecture)
        assert bool(model.rows) == bool(gpu.mig)
        if gpu.mig:
            table = catalog.mig_tables[gpu.mig]
            names = {shape.name for shape in shapes_of(catalog.geometries[table.geometry], table, gpu.memory_mib)}
            assert set(model.profiles()) == names, name
    assert seen == len(MODELS)
