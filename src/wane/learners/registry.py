"""The methods by name: wane's own, those of installed packages, and any class at ``package.module:Name``."""

from wane.learners.agem import AGEM
from wane.learners.der import DER
from wane.learners.derpp import DERpp
from wane.learners.er import ER
from wane.learners.er_ace import ERACE
from wane.learners.ewc import EWC
from wane.learners.finetune import Finetune
from wane.learners.gem import GEM
from wane.learners.hat import HAT
from wane.learners.icarl import ICaRL
from wane.learners.joint import Joint
from wane.learners.learner import Learner
from wane.learners.lwf import LwF
from wane.learners.lwf_mc import LwFMC
from wane.learners.online_ewc import OnlineEWC
from wane.learners.pnn import PNN
from wane.learners.si import SI
from wane.learners.xder import XDER
from wane.registry import Registry

__all__ = ["LEARNERS", "find_learner"]

LEARNERS: Registry[type[Learner]] = Registry(
    "learner",
    {
        "finetune": Finetune, "joint": Joint, "er": ER, "er_ace": ERACE, "der": DER, "derpp": DERpp,
        "xder": XDER, "gem": GEM, "agem": AGEM, "icarl": ICaRL, "ewc": EWC, "online_ewc": OnlineEWC, "si": SI,
        "lwf": LwF, "lwf_mc": LwFMC, "hat": HAT, "pnn": PNN,
    },
    group="wane.learners",
)  # fmt: skip


def find_learner(name: str) -> type[Learner]:
    """The class of a method; an error names the nearest one, or says what is wrong with what was found.

    >>> find_learner("er").title
    'Experience Replay'
    >>> find_learner("math:sqrt")
    Traceback (most recent call last):
    ...
    ValueError: learner 'math:sqrt' is not a method: give a class that extends wane.learners.Learner
    """
    found = LEARNERS.find(name)
    if not (isinstance(found, type) and issubclass(found, Learner)):
        raise ValueError(f"learner {name!r} is not a method: give a class that extends wane.learners.Learner")
    return found
