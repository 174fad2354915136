"""The templates of all pages, with escaping on: one place to get that right."""

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["page_templates"]


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
    )
