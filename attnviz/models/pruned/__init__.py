"""A checkpoint without some of its heads: cut out where transformers can load that, else zeroed."""
