<#
.SYNOPSIS
Runs winpool against the Windows kernel of this machine, with a real kubelet and containerd, and prints a report.

.DESCRIPTION
build: builds etcd, Kubernetes, the network plugin and winpool, and downloads containerd.
test:  starts all of it, runs check.sh, and ends it.
all:   both.

Everything is in one directory, and the logs are in its directory logs. docs/guides/real-windows.md describes it.

.EXAMPLE
powershell -ExecutionPolicy Bypass -File hack\windows\run.ps1
#>
[CmdletBinding()]
param(
    [ValidateSet('build', 'test', 'all')]
    [string]$Step = 'all',
    # The containerd to test with.
    [ValidateSet('1.7', '2')]
    [string]$Containerd = '2',
    [string]$Directory = "$env:SystemDrive\winpool-windows"
)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'

$Repository = (Resolve-Path (Join-Path $PSScriptRoot '..\..')).Path
$Bin = Join-Path $Directory 'bin'
$Logs = Join-Path $Directory 'logs'
$Runtime = Join-Path $Directory "containerd-$Containerd"
$Service = 'winpool-containerd'
$Pipe = '\\.\pipe\winpool-containerd'

# SHA-256 of containerd-<version>-windows-amd64.tar.gz.
$Releases = @{
    '1.7' = @{ Version = '1.7.27'; Hash = '2c51135531ed9eec3d414cc40e0bf1f0203abbe48f449be3cf04bb47f31c7fa5' }
    '2'   = @{ Version = '2.3.4'; Hash = '5a61f42abd362cf21a9af6dff03edf1df2261e6fe6f3c2e45d132d12b99fdf49' }
}
# The commit of microsoft/windows-container-networking with which containerd tests itself.
$NetworkPlugin = 'aa10a0b31e9f72937063436454def1760b858ee2'
# Only 3.10.2 and later have a variant for Windows Server 2025.
$PauseImage = 'registry.k8s.io/pause:3.10.2'

function Write-Step([string]$Text) {
    Write-Host "==> $Text"
}

# Runs a program, and fails if it fails.
function Invoke-Program([string]$Program, [string[]]$Arguments) {
    & $Program @Arguments
    if ($LASTEXITCODE -ne 0) {
        throw "$Program $($Arguments -join ' '): exit code $LASTEXITCODE"
    }
}

# Git Bash, which runs the scripts that also run on Linux.
function Get-Bash {
    $root = & git --exec-path
    $bash = Join-Path $root '..\..\..\bin\bash.exe'
    if (-not (Test-Path $bash)) {
        throw "Git Bash is missing: there is no $bash. Install Git for Windows."
    }
    (Resolve-Path $bash).Path
}

function Get-Node {
    [System.Net.Dns]::GetHostName().ToLowerInvariant()
}

function Get-Build {
    [System.Environment]::OSVersion.Version.Build
}

# Fails, with what to do, if something is missing on this machine.
function Assert-Machine {
    $user = New-Object Security.Principal.WindowsPrincipal([Security.Principal.WindowsIdentity]::GetCurrent())
    if (-not $user.IsInRole([Security.Principal.WindowsBuiltInRole]::Administrator)) {
        throw 'Run this as an administrator.'
    }
    if ($Directory -match '\s') {
        throw "The directory '$Directory' has a space in its name, which not every program can read."
    }
    foreach ($program in 'git', 'go', 'cargo') {
        if (-not (Get-Command $program -ErrorAction SilentlyContinue)) {
            throw "$program is not installed."
        }
    }
    foreach ($name in 'vmcompute', 'hns') {
        if (-not (Get-Service $name -ErrorAction SilentlyContinue)) {
            throw "The Windows feature Containers is not enabled: run Enable-WindowsOptionalFeature -Online -FeatureName Containers -All, and restart."
        }
    }
    Write-Step "Windows build $(Get-Build), $(& go version), $(& cargo --version)"
}

# Builds packages of a pinned Go module below e2e.
function Build-GoModule([string]$Module, [string[]]$Packages) {
    Push-Location (Join-Path $Repository "e2e\$Module")
    try {
        $env:CGO_ENABLED = '0'
        $env:GOWORK = 'off'
        $env:GOFLAGS = '-mod=readonly'
        $version = Invoke-Program go @('list', '-m', '-f', '{{.Version}}', 'k8s.io/kubernetes')
        Write-Step "building $Packages of Kubernetes $version"
        $number = $version.TrimStart('v').Split('.')
        $variable = '-X k8s.io/component-base/version.git'
        $flags = "-s -w ${variable}Version=$version ${variable}Major=$($number[0]) ${variable}Minor=$($number[1])"
        Invoke-Program go (@('build', '-trimpath', '-ldflags', $flags, '-o', $Bin) + $Packages)
    } finally {
        foreach ($name in 'CGO_ENABLED', 'GOWORK', 'GOFLAGS') {
            Remove-Item "Env:\$name"
        }
        Pop-Location
    }
}

function Build-Kubernetes {
    $kubernetes = 'kube-apiserver', 'kube-scheduler', 'kube-controller-manager', 'kubectl' | ForEach-Object { "k8s.io/kubernetes/cmd/$_" }
    Build-GoModule control-plane (@('go.etcd.io/etcd/server/v3') + $kubernetes)
    # Go names the program after the last part of its package.
    Move-Item -Force (Join-Path $Bin 'server.exe') (Join-Path $Bin 'etcd.exe')
    Build-GoModule kubelet @('k8s.io/kubernetes/cmd/kubelet')
}

function Build-NetworkPlugin {
    $source = Join-Path $Directory 'windows-container-networking'
    Write-Step "building the network plugin"
    if (-not (Test-Path $source)) {
        Invoke-Program git @('init', '--quiet', $source)
    }
    Invoke-Program git @('-C', $source, 'fetch', '--quiet', '--depth', '1', 'https://github.com/Microsoft/windows-container-networking', $NetworkPlugin)
    Invoke-Program git @('-C', $source, 'checkout', '--quiet', 'FETCH_HEAD')
    Push-Location $source
    try {
        Invoke-Program go @('build', '-o', (Join-Path $Bin 'nat.exe'), './plugins/nat')
    } finally {
        Pop-Location
    }
}

function Build-Winpool {
    Write-Step 'building winpool and winpool-operator'
    $target = Join-Path $Repository 'target'
    Push-Location $Repository
    try {
        Invoke-Program cargo @('build', '--locked', '-p', 'winpool', '-p', 'winpool-operator', '--target-dir', $target)
    } finally {
        Pop-Location
    }
    foreach ($program in 'winpool.exe', 'winpool-operator.exe') {
        Copy-Item -Force (Join-Path $target "debug\$program") $Bin
    }
}

function Get-Containerd {
    $version = $Releases[$Containerd].Version
    $file = "containerd-$version-windows-amd64.tar.gz"
    $archive = Join-Path $Directory $file
    Write-Step "downloading containerd $version"
    # Windows has its own curl and tar. Others on the path read C:\ in another way.
    $system = Join-Path $env:SystemRoot 'System32'
    $address = "https://github.com/containerd/containerd/releases/download/v$version/$file"
    Invoke-Program (Join-Path $system 'curl.exe') @('--fail', '--location', '--silent', '--show-error', '--retry', '3', '--output', $archive, $address)
    $hash = (Get-FileHash -Algorithm SHA256 $archive).Hash
    if ($hash -ne $Releases[$Containerd].Hash) {
        throw "The SHA-256 of $file is $hash, and not $($Releases[$Containerd].Hash)."
    }
    New-Item -ItemType Directory -Force $Runtime | Out-Null
    Invoke-Program (Join-Path $system 'tar.exe') @('-xzf', $archive, '-C', $Runtime)
}

# The subnet of an address, such as 172.20.0.0/16.
function Get-Subnet([string]$Address, [int]$Length) {
    $parts = ([System.Net.IPAddress]$Address).GetAddressBytes()
    for ($i = 0; $i -lt 4; $i++) {
        $bits = [Math]::Max(0, [Math]::Min(8, $Length - 8 * $i))
        $parts[$i] = $parts[$i] -band (256 - (1 -shl (8 - $bits)))
    }
    "$($parts -join '.')/$Length"
}

# Configures the network plugin for the NAT network of this machine. Without one, the plugin creates it.
function Write-NetworkConfiguration([string]$Path) {
    $gateway = '192.168.100.1'
    $length = 24
    # Docker creates the network when it starts.
    if (Get-Service docker -ErrorAction SilentlyContinue) {
        Start-Service docker -ErrorAction Continue
    }
    $adapter = Get-NetIPAddress -InterfaceAlias 'vEthernet (nat)' -AddressFamily IPv4 -ErrorAction SilentlyContinue | Select-Object -First 1
    if ($adapter) {
        $gateway = $adapter.IPAddress
        $length = $adapter.PrefixLength
    }
    $subnet = Get-Subnet $gateway $length
    Write-Host "network nat: $subnet, gateway $gateway"
    New-Item -ItemType Directory -Force $Path | Out-Null
    Set-Content -Encoding Ascii (Join-Path $Path 'nat.conf') @"
{
    "cniVersion": "0.2.0",
    "name": "nat",
    "type": "nat",
    "master": "Ethernet",
    "ipam": {"subnet": "$subnet", "routes": [{"GW": "$gateway"}]},
    "capabilities": {"portMappings": true, "dns": true}
}
"@
}

# Starts containerd as a service, because only LocalSystem may run HostProcess containers as NT AUTHORITY\SYSTEM.
function Start-Containerd {
    Write-Step 'starting containerd'
    foreach ($name in 'vmcompute', 'hns') {
        Start-Service $name
    }
    $network = Join-Path $Runtime 'network'
    Write-NetworkConfiguration $network
    $configuration = Join-Path $Runtime 'config.toml'
    # containerd 1.7 and 2 both read version 2. Their default handlers stay.
    Set-Content -Encoding Ascii $configuration @"
version = 2
root = '$Runtime\root'
state = '$Runtime\state'
[grpc]
  address = '$Pipe'
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = '$PauseImage'
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = '$Bin'
  conf_dir = '$network'
"@
    $log = Join-Path $Logs 'containerd.log'
    $arguments = @('--register-service', '--service-name', $Service, '--config', $configuration, '--log-file', $log)
    Invoke-Program (Join-Path $Runtime 'bin\containerd.exe') $arguments
    Start-Service $Service
    Wait-Until 'containerd is ready' 60 {
        (Test-Path $log) -and (Select-String -Quiet -SimpleMatch 'containerd successfully booted' $log)
    }
}

# Waits until the condition holds.
function Wait-Until([string]$What, [int]$Seconds, [scriptblock]$Condition) {
    $end = (Get-Date).AddSeconds($Seconds)
    while (-not (& $Condition)) {
        if ((Get-Date) -gt $end) {
            throw "timeout: $What"
        }
        Start-Sleep -Seconds 1
    }
}

# Starts a program of which the output goes to the logs.
function Start-Logged([string]$Name, [string]$Program, [string[]]$Arguments, [string]$WorkingDirectory) {
    $options = @{
        FilePath = $Program
        ArgumentList = $Arguments
        WorkingDirectory = $WorkingDirectory
        RedirectStandardOutput = Join-Path $Logs "$Name.out.log"
        RedirectStandardError = Join-Path $Logs "$Name.log"
        WindowStyle = 'Hidden'
        PassThru = $true
    }
    $process = Start-Process @options
    # Without this, Windows PowerShell forgets the exit code.
    $null = $process.Handle
    $process
}

# Fails with the end of its log if a program has ended.
function Assert-Running([System.Diagnostics.Process]$Process, [string]$Name) {
    if ($Process.HasExited) {
        Get-Content -Tail 20 (Join-Path $Logs "$Name.log") | Write-Host
        throw "$Name has ended with exit code $($Process.ExitCode)"
    }
}

function Start-ControlPlane {
    Write-Step 'starting the control plane'
    $arguments = @('hack/windows/control-plane.sh', $Directory.Replace('\', '/'), (Get-Node))
    $process = Start-Logged 'control-plane' (Get-Bash) $arguments $Repository
    Wait-Until 'the control plane is ready' 300 {
        Assert-Running $process 'control-plane'
        Test-Path (Join-Path $Directory 'ready')
    }
    $process
}

function Start-Kubelet {
    Write-Step 'starting the kubelet'
    Copy-Item -Force (Join-Path $PSScriptRoot 'kubelet.yaml') $Directory
    $arguments = @(
        "--config=$Directory\kubelet.yaml",
        "--kubeconfig=$Directory\node.kubeconfig",
        "--root-dir=$Directory\kubelet",
        "--cert-dir=$Directory\kubelet\pki",
        "--hostname-override=$(Get-Node)",
        '--v=2'
    )
    $process = Start-Logged 'kubelet' (Join-Path $Bin 'kubelet.exe') $arguments $Directory
    Start-Sleep -Seconds 5
    Assert-Running $process 'kubelet'
}

# Ends everything that this script started, also in an earlier run. Programs and logs stay.
function Stop-All {
    # The control plane ends when it sees this file.
    New-Item -ItemType File -Force (Join-Path $Directory 'stop') | Out-Null
    Start-Sleep -Seconds 3
    Stop-Processes "$Bin\*"
    if (Get-Service $Service -ErrorAction SilentlyContinue) {
        Stop-Service $Service -ErrorAction Continue
        & sc.exe delete $Service | Out-Null
    }
    # Containers end with their shim.
    Stop-Processes "$Directory\containerd-*"
}

# Ends the processes of the programs at these paths.
function Stop-Processes([string]$Pattern) {
    $processes = Get-CimInstance Win32_Process | Where-Object { $_.ExecutablePath -like $Pattern }
    foreach ($process in $processes) {
        Stop-Process -Force -Id $process.ProcessId -ErrorAction SilentlyContinue
    }
}

function Invoke-Build {
    New-Item -ItemType Directory -Force $Bin | Out-Null
    Get-Containerd
    Build-NetworkPlugin
    Build-Kubernetes
    Build-Winpool
}

function Invoke-Test {
    if (-not (Test-Path (Join-Path $Bin 'winpool.exe')) -or -not (Test-Path $Runtime)) {
        throw 'The programs are missing: run the step build first.'
    }
    New-Item -ItemType Directory -Force $Logs | Out-Null
    Stop-All
    Remove-Item -Force (Join-Path $Logs '*')
    Remove-Item -Force (Join-Path $Directory 'ready') -ErrorAction SilentlyContinue
    try {
        Start-Containerd
        Start-ControlPlane | Out-Null
        Start-Kubelet
        Write-Step 'checking winpool'
        Push-Location $Repository
        try {
            Invoke-Program (Get-Bash) @('hack/windows/check.sh', $Directory.Replace('\', '/'), (Get-Node), "$(Get-Build)")
        } finally {
            Pop-Location
        }
    } finally {
        Write-Step 'ending everything'
        Stop-All
        Write-Host "logs: $Logs"
    }
}

Assert-Machine
if ($Step -ne 'test') {
    Invoke-Build
}
if ($Step -ne 'build') {
    Invoke-Test
}
