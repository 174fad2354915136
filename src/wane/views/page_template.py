"""The templates of all pages, with escaping on: one place to get that right."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from wane.escaping import lines_visible

__all__ = ["page_templates"]


def _visible(value: Any) -> Any:
    """A text without what would turn the direction of the page around; what is marked as safe stays as it is."""
    return lines_visible(value) if type(value) is str else value


def page_templates(package: str) -> Environment:
    """The `templates` folder of a package, such as "wane.views.report".

    Every value is escaped unless it is marked as safe; a name that was not given is an error, not a gap.
    """
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
