"""`rmqio watch`: the lag, the rates, the brokers and the dead letters of a running job, on a terminal or as a page."""
