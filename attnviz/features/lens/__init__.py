"""What each layer already knows: its states read as if they were the last.

``run`` turns states into words and says what a layer added, ``writes`` reads what heads write.
"""
