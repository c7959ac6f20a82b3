module ringfence.io/recipe

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.8.0
	ringfence.io/client/go v0.0.0
	ringfence.io/client/go/pgxguard v0.0.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	golang.org/x/net v0.48.0 // indirect
	golang.org/x/sync v0.19.0 // indirect
	golang.org/x/sys v0.39.0 // indirect
	golang.org/x/text v0.32.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251202230838-ff82c1b0f217 // indirect
	google.golang.org/grpc v1.79.3 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)

replace (
	ringfence.io/client/go => ../../go
	ringfence.io/client/go/pgxguard => ../../go/pgxguard
)
