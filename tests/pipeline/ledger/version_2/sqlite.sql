PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE ledger_schema (
	version INTEGER NOT NULL
);
INSERT INTO ledger_schema VALUES(2);
CREATE TABLE ledger_datasets (
	name VARCHAR(100) NOT NULL, 
	unit VARCHAR(10) NOT NULL, 
	rho_budget DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	epsilon_budget DOUBLE, 
	created VARCHAR(32) NOT NULL, 
	renyi_order DOUBLE, 
	renyi_bound DOUBLE, 
	PRIMARY KEY (name)
);
INSERT INTO ledger_datasets VALUES('visits','example',1.287349405134234459,9.9999999999999995472e-07,9.0,'2026-11-26T09:25:53.966+00:00',4.1040211040894192251,5.2833091270078575973);
INSERT INTO ledger_datasets VALUES('unused','user',0.5,1.0000000000000000622e-09,NULL,'2026-11-26T09:25:53.970+00:00',NULL,NULL);
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
	PRIMARY KEY (dataset, number), 
	UNIQUE (dataset, run_id), 
	FOREIGN KEY(dataset) REFERENCES ledger_datasets (name)
);
INSERT INTO ledger_runs VALUES('visits',1,'first',0.018396447982945388077,'settled','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ffffffffffffffffffffffffffffffff',1.0523580045569878027,8.0,9.9999999999999995472e-07,'2026-11-26T09:25:54.601+00:00','2026-11-26T09:25:55.221+00:00','{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"training": {"kind": "SelfComposedDpEvent", "event": {"kind": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": {"kind": "GaussianDpEvent", "noise_multiplier": 1.0}}, "count": 200}}}',4.4227696373590674738);
INSERT INTO ledger_runs VALUES('visits',2,'second',0.03125,'reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ssssssssssssssssssssssssssssssss',1.0523580045569878027,8.0,9.9999999999999995472e-07,'2026-11-26T09:25:55.226+00:00',NULL,'{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"votes": {"kind": "DiscreteGaussianVectorDpEvent", "noise_multiplier": 4.0, "sensitivity": 1024, "cells": 4}, "noisy_counts": {"kind": "ZCDpEvent", "rho": 0.0}}}',4.4227696373590674738);
INSERT INTO ledger_runs VALUES('visits',3,'third',0.3000000000000000444,'reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','tttttttttttttttttttttttttttttttt',1.287349405134234459,9.0,9.9999999999999995472e-07,'2026-11-26T09:25:55.362+00:00',NULL,'{"schema": "dp-corpus/run-cost", "schema_version": 1, "neighboring_relation": "add-or-remove-one", "stages": {"generation": {"kind": "TruncatedZCDpEvent", "rho": 0.30000000000000004, "omega": 40.0}}}',4.1040211040894192251);
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
INSERT INTO ledger_events VALUES(1,'visits',NULL,'dataset added','{"unit": "example", "rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}','2026-11-26T09:25:53.968+00:00');
INSERT INTO ledger_events VALUES(2,'unused',NULL,'dataset added','{"unit": "user", "rho_budget": 0.5, "epsilon_budget": null, "delta": 1e-09}','2026-11-26T09:25:53.971+00:00');
INSERT INTO ledger_events VALUES(3,'visits','first','reserved','{"rho": 0.018396447982945388}','2026-11-26T09:25:54.604+00:00');
INSERT INTO ledger_events VALUES(4,'visits','first','settled','{}','2026-11-26T09:25:55.222+00:00');
INSERT INTO ledger_events VALUES(5,'visits','second','reserved','{"rho": 0.03125}','2026-11-26T09:25:55.227+00:00');
INSERT INTO ledger_events VALUES(6,'visits',NULL,'budget changed','{"reason": "a second year''s records", "before": {"rho_budget": 1.0523580045569878, "epsilon_budget": 8.0, "delta": 1e-06}, "after": {"rho_budget": 1.2873494051342345, "epsilon_budget": 9.0, "delta": 1e-06}}','2026-11-26T09:25:55.355+00:00');
INSERT INTO ledger_events VALUES(7,'visits','third','reserved','{"rho": 0.30000000000000004}','2026-11-26T09:25:55.363+00:00');
COMMIT;
