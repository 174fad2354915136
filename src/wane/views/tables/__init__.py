"""Tables of runs: a row a method, mean and spread over seeds."""
