"""Attacks on wane: kills, suspensions, damaged files, hostile settings and foreign files, thousands in a few minutes.

`python -m tests.attack --cases 10000`, or `make attack CASES=10000`. Each kind of attack is a module with a row in
`tests.attack.kinds.KINDS`; a case is a number, so that a failed one can be repeated alone. The parent imports
everything once and computes nothing: every case runs in processes forked from it.
"""
