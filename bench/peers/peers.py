"""What the scripts of this folder share: they run other people's software beside ours, where it is installed."""
import importlib.util
import os
import sys


def need(*modules):
    """Goes on only where the modules can be imported: else with the interpreter in MS_PEERS_PYTHON, or not at all (77)."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return
    other = os.environ.get("MS_PEERS_PYTHON")
    if other and not os.environ.get("MS_PEERS_INSIDE"):
        os.environ["MS_PEERS_INSIDE"] = "1"
        os.execv(other, [other, *sys.argv])
    print(f"SKIPPED: needs {', '.join(missing)}; set MS_PEERS_PYTHON to an interpreter that has them")
    sys.exit(77)


def binary(name):
    """Path of one of our programs: in MS_BIN, or on the PATH."""
    folder = os.environ.get("MS_BIN")
    return os.path.join(folder, name) if folder else name
