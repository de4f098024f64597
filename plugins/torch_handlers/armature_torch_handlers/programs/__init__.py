"""Functions of torch that take programs: functions to run now, later or twice."""
