int bench_run(int json);
int bench_run(int json)
{
	return json;
}
