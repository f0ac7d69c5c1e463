"""The suite of batch preparation: inputs, block tables and slots of a step."""
