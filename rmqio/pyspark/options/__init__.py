"""Options of the format `rocketmq`, from text to checked values."""
