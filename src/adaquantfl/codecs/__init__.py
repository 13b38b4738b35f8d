"""Codecs: levels become bytes and come back; frames are added up without being unpacked first."""
