import importlib
import subprocess
import sys

import pytest

import gpf

PUBLIC = ("continual", "navigation", "network", "plume", "spectra", "tasks", "world_model")


def test_importing_gpf_is_light():
    """Neither torch nor numba nor matplotlib is loaded before it is needed."""
    code = "import sys, gpf; print([name for name in ('torch', 'numba', 'matplotlib', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_plume_world_needs_no_torch():
    code = "import sys, gpf.plume.vector_env, gpf.navigation.evaluate; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", PUBLIC)
def test_a_package_has_what_it_says_that_it_exports(name):
    package = importlib.import_module(f"gpf.{name}")
    assert package is getattr(gpf, name)
    assert len(set(package.__all__)) == len(package.__all__)
    assert all(getattr(package, exported) is not None for exported in package.__all__)
    with pytest.raises(AttributeError):
        package.nothing_of_the_kind  # noqa: B018


def test_gpf_lists_what_users_import_and_nothing_else():
    assert set(dir(gpf)) == {*gpf.__all__, "__version__"}
    assert {name for name in gpf.__all__ if name.islower()} - {"attach", "load", "load_navigator", "train"} == set(
        PUBLIC
    )
    with pytest.raises(AttributeError, match="'gpf' has no attribute 'attatch'"):
        gpf.attatch  # noqa: B018
    code = "import gpf; gpf.network.register_identity, gpf.attach, gpf.plume.Scenario; print('found')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "found\n"
