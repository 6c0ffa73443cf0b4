"""Transforms: functions from Graph to Graph."""
