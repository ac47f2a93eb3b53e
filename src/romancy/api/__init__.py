"""What users import to write workflows. Each primitive makes an operation and hands it to the instance.

workflow.py  `@workflow`
activity.py  `@activity`, and calling one
context.py   `WorkflowContext` and `ActivityContext`
waiting.py   `wait_event`, `sleep`, `sleep_until`
sending.py   `send_event`
"""
