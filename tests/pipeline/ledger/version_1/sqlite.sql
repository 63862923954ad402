PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE ledger_schema (
	version INTEGER NOT NULL
);
INSERT INTO ledger_schema VALUES(1);
CREATE TABLE ledger_datasets (
	name VARCHAR(100) NOT NULL, 
	unit VARCHAR(10) NOT NULL, 
	rho_budget DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	epsilon_budget DOUBLE, 
	created VARCHAR(32) NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO ledger_datasets VALUES('visits','example',2.0,9.9999999999999995472e-07,NULL,'2026-11-21T23:42:49.556+00:00');
INSERT INTO ledger_datasets VALUES('mails','user',0.22424916824634533174,1.0000000000000000817e-05,3.0,'2026-11-21T23:42:49.625+00:00');
INSERT INTO ledger_datasets VALUES('unused','example',0.0039531911412178958806,1.0000000000000000622e-09,0.5,'2026-11-21T23:42:49.681+00:00');
CREATE TABLE ledger_runs (
	dataset VARCHAR(100) NOT NULL, 
	number INTEGER NOT NULL, 
	run_id VARCHAR(100) NOT NULL, 
	rho DOUBLE NOT NULL, 
	rho_by_stage JSON NOT NULL, 
	state VARCHAR(10) NOT NULL, 
	identity VARCHAR(128) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	rho_budget DOUBLE NOT NULL, 
	epsilon_budget DOUBLE, 
	delta DOUBLE NOT NULL, 
	reserved_at VARCHAR(32) NOT NULL, 
	settled_at VARCHAR(32), 
	PRIMARY KEY (dataset, number), 
	UNIQUE (dataset, run_id), 
	FOREIGN KEY(dataset) REFERENCES ledger_datasets (name)
);
INSERT INTO ledger_runs VALUES('visits',1,'first',0.19207275390625000444,'{"centers": 0.0, "noisy_counts": 0.005, "generation": 0.18707275390625}','settled','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ffffffffffffffffffffffffffffffff',1.0,NULL,9.9999999999999995472e-07,'2026-11-21T23:42:49.748+00:00','2026-11-21T23:42:49.811+00:00');
INSERT INTO ledger_runs VALUES('visits',2,'second',0.73333333333333339254,'{"centers": 0.1, "noisy_counts": 0.3333333333333333, "generation": 0.30000000000000004}','reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ssssssssssssssssssssssssssssssss',1.0,NULL,9.9999999999999995472e-07,'2026-11-21T23:42:49.862+00:00',NULL);
INSERT INTO ledger_runs VALUES('visits',3,'third',0.5,'{"generation": 0.5}','reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','tttttttttttttttttttttttttttttttt',2.0,NULL,9.9999999999999995472e-07,'2026-11-21T23:42:50.082+00:00',NULL);
INSERT INTO ledger_runs VALUES('mails',1,'first',1.0000000000000000622e-09,'{"generation": 1e-09}','reserved','iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii','ffffffffffffffffffffffffffffffff',0.22424916824634533174,3.0,1.0000000000000000817e-05,'2026-11-21T23:42:50.135+00:00',NULL);
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
INSERT INTO ledger_events VALUES(1,'visits',NULL,'dataset added','{"unit": "example", "rho_budget": 1.0, "epsilon_budget": null, "delta": 1e-06}','2026-11-21T23:42:49.569+00:00');
INSERT INTO ledger_events VALUES(2,'mails',NULL,'dataset added','{"unit": "user", "rho_budget": 0.22424916824634533, "epsilon_budget": 3.0, "delta": 1e-05}','2026-11-21T23:42:49.640+00:00');
INSERT INTO ledger_events VALUES(3,'unused',NULL,'dataset added','{"unit": "example", "rho_budget": 0.003953191141217896, "epsilon_budget": 0.5, "delta": 1e-09}','2026-11-21T23:42:49.696+00:00');
INSERT INTO ledger_events VALUES(4,'visits','first','reserved','{"rho": 0.19207275390625}','2026-11-21T23:42:49.750+00:00');
INSERT INTO ledger_events VALUES(5,'visits','first','settled','{}','2026-11-21T23:42:49.813+00:00');
INSERT INTO ledger_events VALUES(6,'visits','second','reserved','{"rho": 0.7333333333333334}','2026-11-21T23:42:49.863+00:00');
INSERT INTO ledger_events VALUES(7,'visits','second','resumed','{}','2026-11-21T23:42:49.922+00:00');
INSERT INTO ledger_events VALUES(8,'visits','third','refused','{"rho": 0.5, "reason": "budget exceeded"}','2026-11-21T23:42:49.980+00:00');
INSERT INTO ledger_events VALUES(9,'visits',NULL,'budget changed','{"reason": "a second year''s records", "before": {"rho_budget": 1.0, "epsilon_budget": null, "delta": 1e-06}, "after": {"rho_budget": 2.0, "epsilon_budget": null, "delta": 1e-06}}','2026-11-21T23:42:50.041+00:00');
INSERT INTO ledger_events VALUES(10,'visits','third','reserved','{"rho": 0.5}','2026-11-21T23:42:50.092+00:00');
INSERT INTO ledger_events VALUES(11,'mails','first','reserved','{"rho": 1e-09}','2026-11-21T23:42:50.148+00:00');
COMMIT;
