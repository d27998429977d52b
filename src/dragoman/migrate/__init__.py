"""How do workloads move from device plugins to DRA, and back? Manifests in, manifests and a report out.

    result = rewrite(files, Target(path="dra"))       # `rewrite`: texts with edits by position, what is lost, refusals

Pure functions over texts and snapshots. What a resource of a device plugin becomes stands in `resources`, what a node
label becomes in `labels`; `yamledit` keeps every byte that is not meant to change.
"""
