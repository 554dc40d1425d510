"""What each layer already knows: its states read as if they were the last.

``read`` turns states into words, ``layer_parts`` says what a layer added, ``writes`` reads what
heads write.
"""
