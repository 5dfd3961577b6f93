import subprocess
import sys


def test_importing_gpf_is_light():
    """Neither torch nor numba nor matplotlib is loaded before it is needed."""
    code = "import sys, gpf; print([name for name in ('torch', 'numba', 'matplotlib', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_plume_world_needs_no_torch():
    code = "import sys, gpf.plume.vector_env, gpf.navigation.evaluate; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
