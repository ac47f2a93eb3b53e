"""The API for writing workflows. Each primitive creates an operation and passes it to the instance.

workflow.py  `@workflow`
activity.py  `@activity` and activity calls
step.py      `step`, a function as an activity
context.py   `WorkflowContext` and `ActivityContext`
waiting.py   `wait_event`, `sleep`, `sleep_until`
streams.py   `events`, waits as a loop
sending.py   `send_event`
emissions.py `emit`
saga.py      `compensate` and `saga`
children.py  `start_workflow` and `ChildHandle`
approvals.py  `ask`: questions to people
"""
