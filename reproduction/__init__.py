"""The paper's tables and figures, of the library as a user has it: `python -m reproduction NAME` in a checkout.

`paper` has the paper's values; `tables` and `figures` say what is trained for each and make it; `sweep` trains,
evaluates and records the runs that are missing, `records` reads them; `display` lays results out. `transformations` and
`gradient_study` need no such runs. Records, tables and pictures are in `results/`, the models that come with the
library in `models/`.
"""
