"""The page of a cluster in a browser: JSON made of what inspect, explain, whatif and lint answer, and the files of the
page itself (`static`). Decides nothing and models nothing of its own.
"""
