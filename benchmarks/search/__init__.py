"""Search for settings by validation accuracy, and choose the presets from its log."""
