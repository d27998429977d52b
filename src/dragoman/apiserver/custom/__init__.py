"""Custom resources: from a CustomResourceDefinition to a kind that is served like any other.

`schema` reads structural schemas; `prune`, `check` and `rules` apply them; `definition` judges definitions and makes
kinds of them; `registration` (above the registry) serves what is stored; `columns` and `publish` show it.
"""
