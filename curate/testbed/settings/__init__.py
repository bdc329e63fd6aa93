"""The settings of the testbed, a small file each; `curate.testbed.known_settings` lists them."""
