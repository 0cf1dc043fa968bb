module example.com/hotrow-read

go 1.22
