"""What can the cluster take, what must be bought, and in which order is it changed? Answers over snapshots and files.

Every answer is asked of `whatif`: the controllers and the scheduler decide, this package counts, compares and orders.
Pure: no clock, no file, no cluster; progress is reported by calling a function that is passed in.
"""
