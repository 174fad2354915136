"""A torchvision that can be imported and does nothing: Avalanche imports it for data sets that the tests do not use.

Wheels of torchvision work with one build of torch only. Where the installed one does not load, or there is none, every
name in it is an empty class here.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
import types


class _Module(types.ModuleType):
    __path__ = ()  # a package, whose modules are all found by the finder

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


@contextlib.contextmanager
def stubbed():
    """In the place of a torchvision that does not load, while Avalanche is imported.

    For a process of its own: what else is imported meanwhile, such as transformers, would take it for real.
    """
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        finder = _Finder()
        _forget()
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            _forget()
    else:
        yield


def _forget():
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
