"""What is changed in a model's passes, what that changes, and how sure it is.

Ablation, patching, knockout, suppression and the costs of sinks are lists of interventions: gates,
donors or cuts of some heads. One sweep runs them (:mod:`~attnviz.interventions.sweep`), one list of
metrics says what they change (:mod:`~attnviz.interventions.metrics`), and one family of intervals
how sure that is (:mod:`~attnviz.interventions.judge`).
"""
