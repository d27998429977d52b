"""What would happen if the cluster were different? The one place for that question.

    cluster = bring(snapshot, now)                               # a picture of a cluster, or objects of files
    after = apply(cluster, [RemoveNode("node-a")])               # changes, each as the API server would take it
    for step in run(after.cluster, order, context): ...          # controllers and scheduler to a fixed point

Controllers are those of `reconcile`, decisions those of `schedule`; nothing of theirs is written a second time. The
package plays what stands around them: the API server's part of a write (`writes`), kubelets that start and end what
they are given at once (`run`), and the users who recreate what a change took from them (`changes`). Pure: time is
an argument, names and uids follow from names. A pod that is being deleted in the picture keeps its devices: whether it
ever ends is not known.
"""
