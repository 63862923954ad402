"""The DAG as Airflow itself reads it, as JSON; runs in Airflow's environment, without its database.

python inspect_dag.py FOLDER ENGINE LOGICAL_DATE          import errors, tasks, rendered templates
python inspect_dag.py FOLDER ENGINE LOGICAL_DATE TASK     executes one task; its state

A logical date of '-' stands for a run by hand that has none.
"""

import contextlib
import datetime
import json
import sys
import types
from typing import Any

from airflow.exceptions import AirflowException, AirflowSkipException
from airflow.models.dagbag import DagBag
from airflow.sdk.definitions.context import Context
from airflow.sdk.definitions.param import ParamValidationError
from airflow.sdk.execution_time.context import ConnectionAccessor, VariableAccessor

# A path that nobody may bring into a run through the trigger form.
PATH = 'gs://hospital-notes/visits/2026.jsonl'
RUN_AFTER = datetime.datetime(2026, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


def context_of(dag: Any, engine: str, logical_date: str) -> Context:
    """The part of a task's context that templates read, with Airflow's own accessors."""
    moment = None if logical_date == '-' else datetime.datetime.fromisoformat(logical_date)
    return {
        'params': dag.params.dump() | {'engine': engine},
        'dag_run': types.SimpleNamespace(logical_date=moment, run_after=RUN_AFTER),
        'var': {
            'value': VariableAccessor(deserialize_json=False),
            'json': VariableAccessor(deserialize_json=True),
        },
        'conn': ConnectionAccessor(),
    }


def refuses(dag: Any, name: str, value: Any) -> bool:
    """True if the trigger form's schema refuses a value."""
    try:
        dag.params.get_param(name).resolve(value)
    except ParamValidationError:
        return True
    return False


def main(folder: str, engine: str, logical_date: str, task_id: str | None = None) -> dict[str, Any]:
    """Imports the folder and answers about its one DAG."""
    bag = DagBag(dag_folder=folder)
    if bag.import_errors or task_id == 'import':
        return {'import_errors': bag.import_errors, 'dags': sorted(bag.dags)}
    (dag,) = bag.dags.values()
    context = context_of(dag, engine, logical_date)
    if task_id is not None:
        task = dag.get_task(task_id)
        task.render_template_fields(context, jinja_env=task.get_template_env())
        try:
            task.execute(context)
        except AirflowSkipException as skip:
            return {'state': 'skipped', 'because': str(skip)}
        except AirflowException as failure:
            return {'state': 'failed', 'because': str(failure)}
        return {'state': 'success'}
    tasks = {}
    for task in dag.tasks:
        facts = {
            'type': task.task_type,
            'retries': task.retries,
            'upstream': sorted(task.upstream_task_ids),
            'deferrable': getattr(task, 'deferrable', None),
            'skip_on_exit_code': getattr(task, 'skip_on_exit_code', None),
        }
        task.render_template_fields(context, jinja_env=task.get_template_env())
        names = ('bash_command', 'env', 'body', 'location', 'project_id')
        facts['rendered'] = {name: getattr(task, name) for name in names if hasattr(task, name)}
        tasks[task.task_id] = facts
    return {
        'import_errors': bag.import_errors,
        'catchup': dag.catchup,
        'max_active_runs': dag.max_active_runs,
        'params': dag.params.dump(),
        'refused': {name: refuses(dag, name, 'another') for name in dag.params},
        'refused_paths': [name for name in dag.params if refuses(dag, name, PATH)],
        'choices': {name: dag.params.get_param(name).schema.get('enum') for name in dag.params},
        # As if the form had let everything through.
        'forced': dag.user_defined_macros['flags'](
            dict.fromkeys(dag.params, PATH) | {'run_id': None}, context['dag_run']
        ),
        'choice': dag.get_task('choose_engine').python_callable(context['params']),
        'tasks': tasks,
    }


if __name__ == '__main__':
    with contextlib.redirect_stdout(sys.stderr):
        answer = main(*sys.argv[1:])
    print(json.dumps(answer, default=str))
