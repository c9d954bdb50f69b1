"""DoFns fused into one call, without the hand-over of Beam between them."""
