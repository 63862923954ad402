PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE ledger_schema (
	version INTEGER NOT NULL
);
INSERT INTO ledger_schema VALUES(3);
CREATE TABLE ledger_datasets (
	name VARCHAR(100) NOT NULL, 
	unit VARCHAR(10) NOT NULL, 
	rho_budget DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	epsilon_budget DOUBLE, 
	created VARCHAR(32) NOT NULL, 
	renyi_order DOUBLE, 
	renyi_bound DOUBLE, 
	failure_budget DOUBLE, 
	PRIMARY KEY (name)
);
INSERT INTO ledger_datasets VALUES('gaussian','example',0.33281779638838654422,9.9999999999999995472e-07,4.0,'2026-11-27T04:19:09.414+00:00',NULL,NULL,4.9999999999999997736e-07);
INSERT INTO ledger_datasets VALUES('renyi','example',0.31106495494083480357,9.9999999999999995472e-07,4.0,'2026-11-27T04:19:11.800+00:00',4.1040211040894192251,5.2833091270078575973,NULL);
INSERT INTO ledger_datasets VALUES('unused','user',0.5,1.0000000000000000622e-09,NULL,'2026-11-27T04:19:11.949+00:00',NULL,NULL,5.0000000000000003113e-10);
CREATE TABLE ledger_runs (
	dataset VARCHAR(100) NOT NULL, 
	number INTEGER NOT NULL, 
	run_id VARCHAR(100) NOT NULL, 
	rho DOUBLE NOT NULL, 
	state VARCHAR(10) NOT NULL, 
	identity VARCHAR(128) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	rho_budget DOUBLE NOT NULL, 
	epsilon_budget DOUBLE, 
	delta DOUBLE NOT NULL, 
	reserved_at VARCHAR(32) NOT NULL, 
	settled_at VARCHAR(32), 
	cost JSON, 
	renyi_order DOUBLE, 
	failure DOUBLE, 
	PRIMARY KEY (dataset, number), 
	UNIQUE (dataset, run_id), 
	FOREIGN KEY(dataset) REFERENCES ledger_datasets (name)
);
INSERT INTO ledger_runs VALUES('gaussian',1,'first',0.035582900247640616986,'settled','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ffffffffffffffffffffffffffffffff',1.1202532274804581913,8.0,9.9999999999999995472e-07,'2026-11-27T04:19:10.345+00:00','2026-11-27T04:19:11.780+00:00','{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "SelfComposedDpEvent", "event": {"kind": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": {"kind": "GaussianDpEvent", "noise_multiplier": 1.0}}, "count": 200}}}',NULL,3.0396355092701333525e-07);
INSERT INTO ledger_runs VALUES('gaussian',2,'second',0.00031250000038494560837,'reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ssssssssssssssssssssssssssssssss',0.49471358191620928845,5.0,9.9999999999999995472e-07,'2026-11-27T04:19:11.263+00:00',NULL,'{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}',NULL,NULL);
INSERT INTO ledger_runs VALUES('gaussian',3,'third',0.00031250000038494560837,'reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','tttttttttttttttttttttttttttttttt',0.33281779638838654422,4.0,9.9999999999999995472e-07,'2026-11-27T04:19:11.523+00:00',NULL,'{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}',NULL,NULL);
INSERT INTO ledger_runs VALUES('renyi',1,'first',0.018396447982945388077,'settled','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ffffffffffffffffffffffffffffffff',1.0523580045569878027,8.0,9.9999999999999995472e-07,'2026-11-27T04:19:11.851+00:00','2026-11-27T04:19:11.948+00:00','{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "SelfComposedDpEvent", "event": {"kind": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": {"kind": "GaussianDpEvent", "noise_multiplier": 1.0}}, "count": 200}}}',4.4227696373590674738,NULL);
INSERT INTO ledger_runs VALUES('renyi',2,'second',0.0003125000000000000065,'reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ssssssssssssssssssssssssssssssss',0.46306499013862983948,5.0,9.9999999999999995472e-07,'2026-11-27T04:19:11.883+00:00',NULL,'{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}',4.4227696373590674738,NULL);
INSERT INTO ledger_runs VALUES('renyi',3,'third',0.0003125000000000000065,'reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','tttttttttttttttttttttttttttttttt',0.31106495494083480357,4.0,9.9999999999999995472e-07,'2026-11-27T04:19:11.944+00:00',NULL,'{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"stage": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 40.0, "sensitivity": 1024, "cells": 4}}}',4.1040211040894192251,NULL);
CREATE TABLE ledger_events (
	number INTEGER NOT NULL, 
	dataset VARCHAR(100) NOT NULL, 
	run_id VARCHAR(100), 
	kind VARCHAR(20) NOT NULL, 
	details JSON NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (number), 
	FOREIGN KEY(dataset) REFERENCES ledger_datasets (name)
);
INSERT INTO ledger_events VALUES(1,'gaussian',NULL,'dataset added','{"unit": "example", "rho_budget": 5.052874872254217, "epsilon_budget": 20.0, "delta": 1e-06, "failure_budget": 5e-07}','2026-11-27T04:19:09.416+00:00');
INSERT INTO ledger_events VALUES(2,'gaussian',NULL,'budget changed','{"reason": "before the first charge", "before": {"rho_budget": 5.052874872254217, "epsilon_budget": 20.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 1.1202532274804582, "epsilon_budget": 8.0, "delta": 1e-06, "failure_budget": 5e-07}}','2026-11-27T04:19:09.423+00:00');
INSERT INTO ledger_events VALUES(3,'gaussian','first','reserved','{"rho": 0.03558290024764062}','2026-11-27T04:19:10.346+00:00');
INSERT INTO ledger_events VALUES(4,'gaussian',NULL,'budget changed','{"reason": "less", "before": {"rho_budget": 1.1202532274804582, "epsilon_budget": 8.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 0.4947135819162093, "epsilon_budget": 5.0, "delta": 1e-06, "failure_budget": 5e-07}}','2026-11-27T04:19:11.237+00:00');
INSERT INTO ledger_events VALUES(5,'gaussian','second','reserved','{"rho": 0.0003125000003849456}','2026-11-27T04:19:11.264+00:00');
INSERT INTO ledger_events VALUES(6,'gaussian',NULL,'budget changed','{"reason": "more", "before": {"rho_budget": 0.4947135819162093, "epsilon_budget": 5.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 1.3690264705488968, "epsilon_budget": 9.0, "delta": 1e-06, "failure_budget": 5e-07}}','2026-11-27T04:19:11.487+00:00');
INSERT INTO ledger_events VALUES(7,'gaussian',NULL,'budget changed','{"reason": "less again", "before": {"rho_budget": 1.3690264705488968, "epsilon_budget": 9.0, "delta": 1e-06, "failure_budget": 5e-07}, "after": {"rho_budget": 0.33281779638838654, "epsilon_budget": 4.0, "delta": 1e-06, "failure_budget": 5e-07}}','2026-11-27T04:19:11.493+00:00');
INSERT INTO ledger_events VALUES(8,'gaussian','third','reserved','{"rho": 0.0003125000003849456}','2026-11-27T04:19:11.524+00:00');
INSERT INTO ledger_events VALUES(9,'gaussian','first','settled','{}','2026-11-27T04:19:11.780+00:00');
INSERT INTO ledger_events VALUES(10,'renyi',NULL,'dataset added','{"unit": "example", "rho_budget": 4.789373059556686, "epsilon_budget": 20.0, "delta": 1e-06}','2026-11-27T04:19:11.802+00:00');
INSERT INTO ledger_events VALUES(11,'renyi',NULL,'budget changed','{"reason": "before the first charge", "before": {"rho_budget": 4.789373059556686, "epsilon_budget": 20.0, "delta": 1e-06}, "after": {"rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}}','2026-11-27T04:19:11.822+00:00');
INSERT INTO ledger_events VALUES(12,'renyi','first','reserved','{"rho": 0.018396447982945388}','2026-11-27T04:19:11.853+00:00');
INSERT INTO ledger_events VALUES(13,'renyi',NULL,'budget changed','{"reason": "less", "before": {"rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}, "after": {"rho_budget": 0.46306499013862984, "epsilon_budget": 5.0, "delta": 1e-06}}','2026-11-27T04:19:11.863+00:00');
INSERT INTO ledger_events VALUES(14,'renyi','second','reserved','{"rho": 0.0003125}','2026-11-27T04:19:11.884+00:00');
INSERT INTO ledger_events VALUES(15,'renyi',NULL,'budget changed','{"reason": "more", "before": {"rho_budget": 0.46306499013862984, "epsilon_budget": 5.0, "delta": 1e-06}, "after": {"rho_budget": 1.2873494051342345, "epsilon_budget": 9.0, "delta": 1e-06}}','2026-11-27T04:19:11.911+00:00');
INSERT INTO ledger_events VALUES(16,'renyi',NULL,'budget changed','{"reason": "less again", "before": {"rho_budget": 1.2873494051342345, "epsilon_budget": 9.0, "delta": 1e-06}, "after": {"rho_budget": 0.3110649549408348, "epsilon_budget": 4.0, "delta": 1e-06}}','2026-11-27T04:19:11.931+00:00');
INSERT INTO ledger_events VALUES(17,'renyi','third','reserved','{"rho": 0.0003125}','2026-11-27T04:19:11.945+00:00');
INSERT INTO ledger_events VALUES(18,'renyi','first','settled','{}','2026-11-27T04:19:11.948+00:00');
INSERT INTO ledger_events VALUES(19,'unused',NULL,'dataset added','{"unit": "user", "rho_budget": 0.5, "epsilon_budget": null, "delta": 1e-09, "failure_budget": 5e-10}','2026-11-27T04:19:11.950+00:00');
COMMIT;
