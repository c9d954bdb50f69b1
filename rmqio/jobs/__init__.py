"""`rmqio sql --jobs DIR`: the files of a folder run as jobs, each in a process of its own."""
