"""Models of a notebook or a script, written down for workers. Real notebooks are in `test_notebook`, and a real script
is in `test_library`; here a module plays the program."""

from __future__ import annotations

import inspect
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from lockstep import extraction, objects, runcode
from lockstep.errors import UserError
from lockstep.models import build, check_model, directories
from lockstep.models.small import small
from tests.alone import tiny_recipe

Program = Callable[[str], ModuleType]

WHOLE = '''
from __future__ import annotations
import functools, math as m
import os.path
import xml.dom.minidom, xml.sax
import torch.nn.functional as F
from collections import *
from torch import nn, relu as rectified

NOTHING = None
WIDTH, SIDES = 8, {"small": [2, 3.5], "large": (None, b"x")}
plain = nn.Linear

def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

class Base(nn.Module):
    def top(self):
        return Net, head, xml.dom.minidom, xml.sax, os.path

class Net(Base):
    """Uses what stands below it."""
    width = WIDTH

    def __init__(self, num_classes: Anything, image_shape, options=tuple(n for n in SIDES)):
        super().__init__()
        WIDTH = m.prod(image_shape)
        self.body, self.head = Body(WIDTH, self.width), head(self.width, num_classes)

    @logged
    def forward(self, images):
        return self.head(rectified(self.body(F.relu(images.flatten(1)))))

    @staticmethod
    def counted():
        return OrderedDict(), Counter, NOTHING, __name__

@logged
def first(inputs, outputs):
    return plain(inputs, outputs)

class Body(plain):
    pass

head = first
unused = object()
'''


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Run a text as if it were the script that runs."""

    def run(text: str) -> ModuleType:
        file = tmp_path / f"script{len(list(tmp_path.iterdir()))}.py"
        file.write_text(text)
        module = ModuleType("__main__")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(text, str(file), "exec"), vars(module))
        return module

    return run


def test_a_model_is_written_with_all_that_it_uses(program: Program, tmp_path: Path) -> None:
    module = program(WHOLE)
    (tmp_path / "cell.py").write_text(text := extraction.text([module.Net]))
    alone: dict[str, Any] = {"__name__": "cell"}
    exec(compile(text, str(tmp_path / "cell.py"), "exec"), alone)
    model = alone["Net"](num_classes=10, image_shape=(3, 4, 4))
    assert model(torch.zeros(2, 3, 4, 4)).shape == (2, 10)
    assert model.counted() == (OrderedDict(), Counter, None, "cell")
    assert model.top()
    assert (alone["WIDTH"], alone["SIDES"]) == (8, {"small": [2, 3.5], "large": (None, b"x")})
    assert inspect.getsource(module.Net) in text  # as it was written, comments and all
    assert "unused" not in text
    assert extraction.text([module.Net]) == text


def test_a_class_without_methods_is_the_one_that_was_defined_last(program: Program) -> None:
    text = (
        "from torch import nn\nclass Net(nn.Linear):\n    a = 1\nif True:\n    class Net(nn.Linear):\n        a = 2\n"
    )
    assert "class Net(nn.Linear):\n    a = 2\n" in extraction.text([program(text).Net])


MODEL = "from torch import nn\n{}\ndef net(num_classes, image_shape{}):\n    return nn.Linear(10, num_classes, {})\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("net = lambda num_classes, image_shape: None", "a lambda has no name"),
        (
            "def f():\n    def net(num_classes, image_shape): pass\n    return net\nnet = f()",
            "define net on the top level",
        ),
        ("net = 3", "a function or class that makes one, not int"),
        (
            "from torch import nn\nnet = nn.Linear(1, 1)",
            "or class that makes one, not Linear: every worker makes its own",
        ),
        ("def net(classes, shape): pass", "net must take num_classes and image_shape"),
        (MODEL.format("", "", "bias=missing"), "net uses 'missing', which is not defined: define it before"),
        (
            MODEL.format("live = open('/dev/null')", "", "live"),
            "net uses 'live', and a TextIOWrapper cannot be written",
        ),
        (MODEL.format("import numpy\none = numpy.float32(1)", "", "one"), "net uses 'one', and a float32 cannot be"),
        (MODEL.format("import beside", "", "beside.bias"), "needs `import beside`, a module of your own that workers"),
        (MODEL.format("f = lambda: True", "", "f()"), "a lambda has no name"),
        (
            MODEL.format("def f(): pass\ng = f\ndef f(): return 1", "", "f(), g()"),
            "two different definitions of f are used: give one of them another name",
        ),
        (
            "class net:\n    def __init__(self, num_classes, image_shape): pass\n    def forward(self): pass\n"
            "def other(self): pass\nnet.forward = other",
            "net.forward is not what the class says, it was set later: write it into the class",
        ),
        (
            "class Base:\n    pass\nclass net(Base):\n    def __init__(self, num_classes, image_shape): pass\n"
            "class Base:\n    pass",
            "Base has changed since net was defined: define net again",
        ),
        (
            "exec('def net(num_classes, image_shape): pass')",
            "the source of net cannot be found, so workers could not be given it: put it into a file",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_sentence(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    (tmp_path / "beside.py").write_text("bias = True")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError) as error, objects.named("model", program(text).net):
        pass
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


class Mine(nn.Linear):
    def __init__(self, num_classes: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__(image_shape[0], num_classes)


def test_what_is_in_a_module_is_named_by_it(program: Program, tmp_path: Path) -> None:
    """As workers find it; a name stays a name."""
    with objects.named("model", small) as name:
        assert name == "lockstep.models.small:small"
    with objects.named("model", "timm:resnet10t") as name:
        assert name == "timm:resnet10t"
    with objects.named("model", Mine) as name:
        assert name is not None
        model = tiny_recipe().model.__class__(name=name)
        check_model(model)
        assert isinstance(build(model, 10, (3, 32, 32)), Mine)
    made = type("Other", (Mine,), {"__module__": __name__})
    with pytest.raises(UserError, match=r"has no Other that is this one"), objects.named("model", made):
        pass


def test_a_file_is_there_while_it_is_needed_and_a_run_keeps_a_copy(program: Program, tmp_path: Path) -> None:
    """Files of users stay where they are."""
    module = program(MODEL.format("", "", "True"))
    recipe = tiny_recipe()
    with objects.named("model", module.net) as name:
        assert name is not None
        named = recipe.__class__(name="r", model=recipe.model.__class__(name=name))
        placed, code = runcode.placed(named, tmp_path)
        assert runcode.with_names_of_same(named, tmp_path) == named  # there is no such run yet
        runcode.write(tmp_path, code)
        assert runcode.with_names_of_same(named, tmp_path) == placed
        runcode.write(tmp_path / "other", {"model": f"{code['model']}# and more"})
        assert runcode.with_names_of_same(named, tmp_path / "other") == named
    assert not Path(name.rpartition(":")[0]).exists()
    assert placed.model.name == f"{tmp_path}/code/cell.py:net"
    check_model(placed.model)
    assert directories(placed.model) == (tmp_path / "code",)  # what travels to the nodes of a cluster
    stored = runcode.with_relative_names(placed, tmp_path)
    assert stored.model.name == "code/cell.py:net"
    assert runcode.with_absolute_names(stored, tmp_path) == placed
    assert runcode.with_contents(placed).model.name.startswith("code/cell.py ")
    own = recipe.__class__(name="r", model=recipe.model.__class__(name=f"{module.__file__}:net"))
    assert runcode.placed(own, tmp_path) == (own, {})
    assert runcode.with_contents(own) == runcode.with_relative_names(own, tmp_path) == own
