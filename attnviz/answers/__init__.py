"""Shapes and costs of attention, in one call: what ``attnviz shapes`` prints.

Nothing here imports torch, except to verify; matplotlib and NumPy are imported only for what
needs them.
"""

from __future__ import annotations

from attnviz.answers.request import Request, view_of
from attnviz.render.shapes.answer import Answer


def shapes(request: Request) -> Answer:
    """Answer one request, writing the files it asks for.

    Raises:
        UsageError, SizeError: options or sizes that do not go together.
        ModelError: a config that cannot be read. InputError: numbers that cannot be read.
        OutputError: a file that cannot be written.
    """
    view = view_of(request)
    if view == "presets":
        from attnviz.render.shapes.models import presets_answer
        from attnviz.shapes.configs.presets import presets

        return presets_answer(presets())
    if view in ("numbers", "animate"):
        from attnviz.answers.numeric import numbers_view

        return numbers_view(request)
    from attnviz.answers import views
    from attnviz.answers.layer import model_of, run_of, spec_asked

    if view == "scaling":
        return views.scaling_view(request)
    model = model_of(request)
    spec = model.main.spec if model else spec_asked(request)
    run = run_of(request)
    if view == "sweep":
        return views.sweep_view(request, run, spec)
    if view == "compare":
        return views.compare_view(request, run, spec, model)
    if view == "verify":
        return views.verify_view(request, run, spec, model)
    return views.walk_view(request, run, spec, model)


__all__ = ["Answer", "Request", "shapes"]
